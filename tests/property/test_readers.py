"""Whatever the bytes of a file: what it holds, line for line, or one InputError of one line."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.common.errors import InputError
from transformer.data.text.conllu import read_conllu
from transformer.data.text.parallel import Corpus, read_lines
from transformer.data.text.phrases import read_phrases
from transformer.data.text.word_alignment import read_links
from transformer.decoding.constraints.request import Request

# What a line may be made of: text, what a format means something by, and what trips readers up.
_DIGITS = b"1" * 5000
PARTS = [
    *(b"a", b" ", b"\t", b"\t\t", b"\r", b"\0", b"0-0 1p2", b"-", b"#", b"1\t", b"1.1\t", b"2-3\t"),
    *(b"1\tw\t_\tNOUN\t_\t_\t_\t_\t_\t_", b'{"x": "a", "y": "b"}', b'{"x": 1', b'"y": ["a"]}'),
    *(b'{"text": "a", "must": ["b"]}', b'{"text": "a\\ud800"}', b'{"text": null}', b'["a", "b"]'),
    *(b'["a", 1]', b"NaN", b"[" * 2000, b'{"x":' * 2000, b'{"prefix": ' + _DIGITS + b"}", _DIGITS),
    *(_DIGITS + b"-0", b'{"x": "a\\nb", "y": "\\u2028"}', b'{"x": "\\ud800", "y": "b"}'),
    *("ä\u2028\x85\ufeff日🙂".encode(), b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc3"),
]
LINES = st.lists(st.sampled_from(PARTS) | st.binary(max_size=8), max_size=4).map(b"".join)
CONTENT = st.binary(max_size=60) | st.tuples(
    st.lists(LINES, max_size=5).map(b"\n".join), st.sampled_from([b"", b"\n", b"\r\n"])
).map(b"".join)

fuzzed = settings(max_examples=100, deadline=None)


@contextmanager
def files(*contents: tuple[str, bytes]) -> Iterator[list[Path]]:
    """Files of these names and contents."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name, _ in contents]
        for path, (_, content) in zip(paths, contents, strict=True):
            path.write_bytes(content)
        yield paths


def read(reader: Callable[[], Any]) -> list[Any] | None:
    """All that is read, or None where it is refused as it should be."""
    try:
        return list(reader())
    except InputError as error:
        said = str(error)
        assert len(said.splitlines()) == 1, said
        said.encode()
        return None


def line_count(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n") and content != b"")


@fuzzed
@given(CONTENT, st.sampled_from(["text", "text.tsv", "text.jsonl"]))
def test_lines_in_are_lines_out(content: bytes, name: str) -> None:
    with files((name, content)) as (path,):
        lines = read(lambda: read_lines(path))
        assert lines is None or len(lines) == line_count(content)
        if name == "text":
            pairs = read(lambda: Corpus((path, path), "x", "y"))
            assert (pairs is None) == (lines is None)
        else:
            pairs = read(lambda: Corpus((path,), "x", "y"))
        assert pairs is None or len(pairs) == line_count(content)
        for pair in pairs or ():
            assert all("\n" not in text and text.encode() is not None for text in pair)


@fuzzed
@given(CONTENT)
def test_tagged_sentences_phrases_and_links_are_read_or_refused(content: bytes) -> None:
    with files(("text", content)) as (path,):
        for words, tags in read(lambda: read_conllu(path)) or ():
            assert len(words) == len(tags) > 0
        phrases = read(lambda: read_phrases(path))
        assert phrases is None or len(phrases) == line_count(content)
        pairs = [("a b c", "d e f")] * line_count(content)
        links = read(lambda: read_links(path, pairs))
        assert links is None or len(links) == line_count(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)
REQUESTS = st.dictionaries(
    st.sampled_from(["text", "prefix", "must", "never", "mist"]),
    st.text() | st.lists(st.text(max_size=3), max_size=3) | JSON,
).map(json.dumps)


@settings(max_examples=300, deadline=None)
@given(
    REQUESTS | JSON.map(json.dumps) | st.text() | LINES.map(lambda b: b.decode("utf-8", "replace"))
)
def test_a_request_is_understood_or_refused(line: str) -> None:
    requests = read(lambda: [Request.parse(line, "stdin:1")])
    for request in requests or ():
        request.text.encode()
        if request.constraints is not None:
            assert "" not in (*request.constraints.must, *request.constraints.never)
