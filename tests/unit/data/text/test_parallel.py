"""Files are read line for line as they are, and what is wrong with them is said in one line."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transformer.common.errors import InputError, MissingFile
from transformer.data.text.parallel import AnotherTarget, Corpus, read_lines

LINES = ["Two dogs.", "", "a\u2028b\x0b\x85c", "d\re", "größer 日本", " spaced  out "]
TARGETS = [line.upper() for line in LINES]


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    ("suffix", "mark", "end"), [("", b"", "\n"), ("", b"\xef\xbb\xbf", "\r\n"), (".gz", b"", "\n")]
)
def test_a_line_ends_at_a_line_feed_and_nowhere_else(
    tmp_path: Path, suffix: str, mark: bytes, end: str
) -> None:
    path = write(tmp_path / f"a.en{suffix}", mark + end.join([*LINES, ""]).encode())
    assert list(read_lines(path)) == LINES
    # The last line needs no end.
    assert list(read_lines(write(path, mark + f"1{end}2".encode()))) == ["1", "2"]
    assert list(read_lines(write(path, b""))) == []


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_formats_hold_the_same_pairs(tmp_path: Path, suffix: str) -> None:
    pairs = list(zip(LINES, TARGETS, strict=True))
    source = write(tmp_path / f"a.en{suffix}", "".join(f"{line}\n" for line in LINES))
    target = write(tmp_path / f"a.de{suffix}", "".join(f"{line}\n" for line in TARGETS))
    tsv = write(tmp_path / f"a.tsv{suffix}", "".join(f"{s}\t{t}\n" for s, t in pairs))
    rows = [json.dumps({"de": t, "id": 1, "en": s}) for s, t in pairs]
    jsonl = write(tmp_path / f"a.jsonl{suffix}", "\n".join(rows))
    rows_file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"de": TARGETS, "id": [1] * 6, "en": LINES}), rows_file)
    records = [{"id": 1, "translation": {"de": t, "en": s}} for s, t in pairs]
    nested = write(tmp_path / f"b.jsonl{suffix}", "\n".join(map(json.dumps, records)))
    nested_file = tmp_path / "b.parquet"
    pq.write_table(pa.Table.from_pylist(records), nested_file)
    for paths in ([source, target], [tsv], str(jsonl), rows_file, nested, nested_file):
        assert list(Corpus.of(paths, "en", "de")) == pairs
    with pytest.raises(InputError, match=r"\[a.en \(plain\)\] is not a corpus"):
        Corpus.of("a.en", "en", "de")
    with pytest.raises(InputError, match=r"b.tsv.gz \(tsv\)\] is not a corpus"):
        Corpus.of(["a.txt", "b.tsv.gz"], "en", "de")


def test_rows_of_parquet_are_as_lines_of_jsonl(tmp_path: Path) -> None:
    """A list of targets, a bad value, a missing column, a file of another kind."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"en": ["a", "b"], "de": [["x", "y"], ["z"]]}), path)
    pairs = list(Corpus.of(path, "en", "de"))
    assert pairs == [("a", "x"), ("a", "y"), ("b", "z")]
    assert [isinstance(target, AnotherTarget) for _, target in pairs] == [False, True, False]
    with pytest.raises(InputError, match=r"a\.parquet: the column 'fr' has nothing \(columns: en"):
        list(Corpus.of(path, "en", "fr"))
    for texts in (["x"], [{"en": "a", "fr": "b"}], []):
        pq.write_table(pa.table({"id": [1] * len(texts), "translation": texts}), path)
        with pytest.raises(InputError, match=r"'en' has nothing \(columns: id, translation\)"):
            list(Corpus.of(path, "en", "de"))
    pq.write_table(pa.table({"en": ["a", "b"], "de": ["x", None]}), path)
    with pytest.raises(InputError, match=r"a\.parquet:2: the column 'de' has None"):
        list(Corpus.of(path, "en", "de"))
    for content in (path.read_bytes()[:-9], b"a\tb\n"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.parquet: not a Parquet file that can be read \("):
            list(Corpus.of(path, "en", "de"))
    with pytest.raises(MissingFile, match="no such file"):
        list(Corpus.of(tmp_path / "b.pq", "en", "de"))


WRONG_FILES = [
    ("utf8.tsv", b"a\tb\nc\xff\td\n", r"utf8\.tsv:2: byte 2 of the line is not UTF-8"),
    ("notab.tsv", "a\tb\nc d\n", r"notab\.tsv:2: 0 tabs where SOURCE<TAB>TARGET has one"),
    ("tabs.tsv", "a\tb\tc\n", r'tabs\.tsv:1: 2 tabs where .*set tokenizer\.features=";"'),
    ("bad.jsonl", '{"en": "a", "de": "b"}\n{"en"\n', r"bad\.jsonl:2: not a JSON object"),
    ("key.jsonl", '{"en": "a", "ger": "b"}\n', r":1: the key 'de' has nothing \(keys: en, ger\)"),
    ("item.jsonl", '{"en": "a", "de": ["x", 3]}\n', r"item\.jsonl:1: the key 'de' has 3"),
    ("half.jsonl", '{"en": "\\ud83d", "de": "c"}\n', r"half\.jsonl:1: the key 'en' has '.ud83d'"),
]


@pytest.mark.parametrize(("name", "data", "message"), WRONG_FILES)
def test_a_malformed_line_is_named(
    tmp_path: Path, name: str, data: str | bytes, message: str
) -> None:
    corpus = Corpus.of(write(tmp_path / name, data), "en", "de")
    with pytest.raises(InputError, match=message) as raised:
        list(corpus)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("sources", "targets"), [(3, 5), (4, 3)])
def test_unequal_line_counts_are_both_given(tmp_path: Path, sources: int, targets: int) -> None:
    files = write(tmp_path / "a.en", "x\n" * sources), write(tmp_path / "a.de", "y\n" * targets)
    with pytest.raises(InputError, match=rf"a\.en has {sources} .*a\.de has {targets} lines;"):
        list(Corpus.of(files, "en", "de"))


@pytest.mark.parametrize("kept", [0, -2000], ids=["no gzip", "truncated"])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path / "a.tsv.gz", "".join(f"{n * 7919}\t{n}\n" for n in range(5000)))
    path.write_bytes(path.read_bytes()[:kept] or b"a\tb\n")
    line = r"\d\d+" if kept else "1"
    with pytest.raises(InputError, match=rf"a\.tsv\.gz:{line}: damaged gzip file "):
        list(Corpus.of(path, "en", "de"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("trian.tsv", r"trian\.tsv: no such file \(did you mean train\.tsv\?\)"),
        ("link.tsv", r"link\.tsv: no such file; it is a link to gone\.tsv, which is not there$"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, name: str, says: str) -> None:
    write(tmp_path / "train.tsv", "a\tb\n")
    (tmp_path / "link.tsv").symlink_to("gone.tsv")
    with pytest.raises(InputError, match=says):
        list(Corpus.of(tmp_path / name, "en", "de"))


def test_the_fingerprint_follows_content_and_keys(tmp_path: Path) -> None:
    def fingerprint(text: str, source: str = "en") -> str:
        return Corpus.of(write(tmp_path / "a.tsv", text), source, "de").fingerprint()

    assert fingerprint("a\tb\n") == fingerprint("a\tb\n")
    assert fingerprint("a\tb\n") != fingerprint("a\tc\n")
    assert fingerprint("a\tb\n") != fingerprint("a\tb\n", source="fr")
