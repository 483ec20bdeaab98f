"""A source is a path, perhaps with a part of the file; its bytes come from the file or a row."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.common.errors import InputError
from transformer.data.features.reference import Reference, opened


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("talk.wav", Reference("talk.wav")),
        ("talk.wav#t=1.5,4.2", Reference("talk.wav", 1.5, 4.2)),
        ("talk.wav#t=,4.2", Reference("talk.wav", end=4.2)),
        ("talk.wav#t=1.5,", Reference("talk.wav", 1.5)),
        ("talk.wav#speed=0.9", Reference("talk.wav", speed=0.9)),
        ("clips.parquet#row=12", Reference("clips.parquet", row=12)),
        ("a.parquet#row=0&t=1,2&speed=1.1", Reference("a.parquet", 1.0, 2.0, 0, 1.1)),
        ("b.parquet#row=0&column=a%20%26b", Reference("b.parquet", row=0, column="a &b")),
        ("take #3.wav", Reference("take #3.wav")),
        ("take#t.wav", Reference("take#t.wav")),
        ("take #3.wav#t=0.5,", Reference("take #3.wav", 0.5)),
    ],
)
def test_texts(text: str, reference: Reference) -> None:
    assert Reference.parse(text) == reference
    assert str(reference) == text


def test_one_number_is_a_start() -> None:
    assert Reference.parse("talk.wav#t=3") == Reference("talk.wav", 3.0)


@pytest.mark.parametrize(
    "fragment",
    [
        *("t=", "t=,", "t=a,2", "t=2,1", "t=1,1", "t=-1,2", "t=1,2,3", "t=nan,", "t=1e3,"),
        *("row=", "row=-1", "row=1.5", "row=x", "speed=0", "speed=", "speed=2.1", "speed=nan"),
        *("t=1,2&t=2,3", "row=1&", "row=1&page=2", "speed=0.9;t=1"),
    ],
)
def test_wrong_fragments(fragment: str) -> None:
    with pytest.raises(InputError, match=r"^talk\.wav#.*; write #t="):
        Reference.parse(f"talk.wav#{fragment}")


_SECONDS = st.floats(0, 1e9, exclude_min=True)


@given(
    st.builds(
        lambda path, start, length, row, speed, column: Reference(
            path,
            start,
            None if length is None else start + length,
            row,
            speed,
            None if row is None else column,
        ),
        st.text(st.characters(exclude_characters="#")),
        st.one_of(st.just(0.0), _SECONDS),
        st.one_of(st.none(), st.floats(1e-3, 1e6)),
        st.one_of(st.none(), st.integers(0, 10**12)),
        st.one_of(st.just(1.0), st.floats(0.5, 2)),
        st.one_of(st.none(), st.text(st.characters(codec="utf-8"))),
    )
)
def test_a_reference_is_read_back(reference: Reference) -> None:
    assert Reference.parse(str(reference)) == reference


def content(source: str) -> bytes:
    with opened(Reference.parse(source)) as file:
        return file.read()


def test_a_row_of_bytes(tmp_path: Path) -> None:
    """From the first column of bytes, or another, in each group of rows."""
    file = tmp_path / "clips.parquet"
    rows = [f"clip {number}".encode() for number in range(7)]
    table = pa.table({"text": ["a"] * 7, "sound": rows, "other": [b"wrong"] * 7})
    pq.write_table(table, file, row_group_size=3)
    assert [content(f"{file}#row={row}") for row in (0, 2, 3, 6, 1)] == [
        rows[row] for row in (0, 2, 3, 6, 1)
    ]
    assert content(f"{file}#row=4&column=other") == b"wrong"
    pq.write_table(table.slice(3), file, row_group_size=3)
    assert content(f"{file}#row=1") == rows[4], "of the file before"


def test_a_row_of_a_structure(tmp_path: Path) -> None:
    """As the library datasets writes sounds and pictures: bytes, or a path beside the file."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b.wav").write_bytes(b"second")
    values = [{"bytes": b"first", "path": "a.wav"}, {"bytes": None, "path": "inner/b.wav"}]
    pq.write_table(pa.table({"text": ["", ""], "audio": values}), tmp_path / "clips.parquet")
    pq.write_table(pa.table({"file": [{"path": "inner/b.wav"}]}), tmp_path / "paths.parquet")
    assert content(f"{tmp_path}/clips.parquet#row=0") == b"first"
    assert content(f"{tmp_path}/clips.parquet#row=1") == b"second"
    assert content(f"{tmp_path}/paths.parquet#row=0") == b"second"


def test_urls(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"sound")
    pq.write_table(pa.table({"sound": [b"x", b"y"]}), tmp_path / "a.parquet")
    assert content(f"file://{tmp_path}/a.wav") == b"sound"
    assert content(f"file://{tmp_path}/a.parquet#row=1") == b"y"
    with pytest.raises(InputError, match="cannot be read"):
        content(f"file://{tmp_path}/b.wav")


def test_a_web_server_that_fails() -> None:
    """The reason is that of the connection, or the answer of the server."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(403)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}/a.wav"
        with pytest.raises(InputError, match=r"a\.wav: cannot be read \(403, .*Forbidden'\); "):
            content(place)
        server.shutdown()
    with pytest.raises(InputError, match=r"a\.wav: cannot be read \(Cannot connect to host"):
        content(place)


def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.wav").write_bytes(b"sound")
    assert content("~/a.wav") == b"sound"
