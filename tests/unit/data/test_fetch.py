"""Multi30k comes from a server once, checked, or from a folder; here from a server on this host."""

import gzip
import hashlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from transformer.data import fetch
from transformer.data.fetch import fetch_multi30k, find_multi30k
from transformer.errors import InputError

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


@pytest.fixture
def train_en(served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> str:
    data = gzip.compress(b"A man sleeps.\n")
    (served[0] / "train.en.gz").write_bytes(data)
    monkeypatch.setitem(fetch.SHA256, "train.en.gz", hashlib.sha256(data).hexdigest())
    return served[1]


def test_a_file_is_fetched_once(train_en: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path = fetch_multi30k("en", "train", cache, train_en)
    assert gzip.decompress(path.read_bytes()) == b"A man sleeps.\n"
    assert fetch_multi30k("en", "train", cache, train_en) == path
    assert requested == ["/train.en.gz"]


def test_other_content_is_refused(served: tuple[Path, str], tmp_path: Path) -> None:
    (served[0] / "train.en.gz").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"cannot fetch .*train\.en\.gz.*hash"):
        fetch_multi30k("en", "train", tmp_path / "cache", served[1])
    assert not (tmp_path / "cache" / "train.en.gz").exists()


def test_a_damaged_file_in_the_cache_is_fetched_again(train_en: str, tmp_path: Path) -> None:
    path = fetch_multi30k("en", "train", tmp_path, train_en)
    path.write_bytes(b"damaged")
    fetch_multi30k("en", "train", tmp_path, train_en)
    assert gzip.decompress(path.read_bytes()) == b"A man sleeps.\n"


def test_no_such_file_and_no_server_are_input_errors(
    served: tuple[Path, str], tmp_path: Path
) -> None:
    for url in (served[1], "http://127.0.0.1:9/"):
        with pytest.raises(InputError, match=r"set data\.root=FOLDER") as raised:
            fetch_multi30k("fr", "test", tmp_path, url)
        assert "\n" not in str(raised.value)


def test_an_unknown_language_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no language 'ja'.*en, de, fr"):
        fetch_multi30k("ja", "train", tmp_path)


def test_a_folder_of_files_packed_or_not(tmp_path: Path) -> None:
    (tmp_path / "val.en.gz").touch()
    (tmp_path / "val.de").touch()
    assert find_multi30k("en", "validation", tmp_path).name == "val.en.gz"
    assert find_multi30k("de", "validation", tmp_path).name == "val.de"
    with pytest.raises(InputError, match=r"has no train\.en\.gz"):
        find_multi30k("en", "train", tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        find_multi30k("en", "train", tmp_path / "absent")


def test_every_file_of_every_split_has_a_checksum() -> None:
    names = {f"{name}.{code}.gz" for name in fetch.SPLITS.values() for code in fetch.LANGUAGES}
    assert names == set(fetch.SHA256)
    assert all(len(digest) == 64 for digest in fetch.SHA256.values())
