"""A published corpus comes from a server once, checked, or from a folder; here from this host."""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from transformer.common.errors import InputError
from transformer.data.corpora.catalog import PUBLISHED, PublishedCorpus, fetch, find

MULTI30K = PUBLISHED["multi30k"]
TANAKA_ENJA = PUBLISHED["tanaka_enja"]
requested: list[str] = []


class Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        requested.append(self.path)
        super().do_GET()

    def log_message(self, *message: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)  # between two attempts
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    requested.clear()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def published(served: tuple[Path, str], like: PublishedCorpus, **files: bytes) -> PublishedCorpus:
    """A corpus of the same names on the server, of other content; ``__`` stands for a dot."""
    contents = {name.replace("__", "."): content for name, content in files.items()}
    for name, content in contents.items():
        (served[0] / name).write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return replace(like, url=served[1], sha256={**like.sha256, **digests})


@pytest.fixture
def corpus(served: tuple[Path, str]) -> PublishedCorpus:
    return published(served, MULTI30K, train__en__gz=gzip.compress(b"A man sleeps.\n"))


def test_a_file_is_fetched_once_or_again_if_damaged(
    corpus: PublishedCorpus, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    path = fetch(corpus, "en", "train", cache)
    assert gzip.decompress(path.read_bytes()) == b"A man sleeps.\n"
    assert fetch(corpus, "en", "train", cache) == path
    assert requested == ["/train.en.gz"]
    path.write_bytes(b"damaged")
    fetch(corpus, "en", "train", cache)
    assert gzip.decompress(path.read_bytes()) == b"A man sleeps.\n"


def test_parts_become_one_file_once(served: tuple[Path, str], tmp_path: Path) -> None:
    parts = {f"train__ja__00{number}": f"文 {number} 。\n".encode() for number in range(5)}
    text = b"".join(parts.values())
    tanaka = published(served, TANAKA_ENJA, **parts)
    tanaka = replace(tanaka, sha256={**tanaka.sha256, "train.ja": hashlib.sha256(text).hexdigest()})
    whole = fetch(tanaka, "ja", "train", tmp_path)
    assert (whole.name, whole.read_bytes()) == ("train.ja", text)
    fetch(tanaka, "ja", "train", tmp_path)
    assert sorted(requested) == [f"/train.ja.00{number}" for number in range(5)]
    whole.write_bytes(text[:-1])
    assert fetch(tanaka, "ja", "train", tmp_path).read_bytes() == text


def test_no_such_file_and_no_server_are_input_errors(
    served: tuple[Path, str], tmp_path: Path, corpus: PublishedCorpus
) -> None:
    for url in (served[1], "http://127.0.0.1:9/"):
        with pytest.raises(InputError, match=r"set data\.root=FOLDER"):
            fetch(replace(MULTI30K, url=url), "fr", "test", tmp_path)
    with pytest.raises(InputError, match="multi30k has no language 'ja'"):
        fetch(MULTI30K, "ja", "train", tmp_path)
    # Other content is refused.
    other = replace(corpus, sha256=MULTI30K.sha256)
    with pytest.raises(InputError, match=r"cannot fetch .*train\.en\.gz.*hash"):
        fetch(other, "en", "train", tmp_path / "cache")
    assert not (tmp_path / "cache" / "train.en.gz").exists()


def test_files_of_a_folder_may_be_gzipped(tmp_path: Path) -> None:
    (tmp_path / "val.en.gz").touch()
    (tmp_path / "val.de").touch()
    assert find(MULTI30K, "en", "validation", tmp_path).name == "val.en.gz"
    assert find(MULTI30K, "de", "validation", tmp_path).name == "val.de"
    with pytest.raises(InputError, match=r"has no train\.en\.gz"):
        find(MULTI30K, "en", "train", tmp_path)
    for part in TANAKA_ENJA.parts["train.en"]:
        (tmp_path / part).touch()
    with pytest.raises(InputError, match=r"only in parts: cat train\.en\.000 .* > train\.en; set"):
        find(TANAKA_ENJA, "en", "train", tmp_path)
