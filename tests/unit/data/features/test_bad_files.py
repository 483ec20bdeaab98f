"""A bad file gives one line: the file, the reason, and what to do."""

import io
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from PIL import Image

from transformer.common.errors import InputError
from transformer.data.features.extractor import FeatureExtractor
from transformer.settings.sources import SourceConfig, VectorsConfig

EXTRACTORS = {
    "speech": FeatureExtractor(SourceConfig("speech", 4)),
    "image": FeatureExtractor(SourceConfig("image")),
    "vectors": FeatureExtractor(SourceConfig("vectors", vectors=VectorsConfig(channels=3))),
}
NOISE = (0.1 * np.random.default_rng(1).standard_normal(8000)).astype(np.float32)


def sound(samples: Any = NOISE, kind: str = "WAV", **options: Any) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format=kind, **options)
    return file.getvalue()


def picture(kind: str = "PNG", size: tuple[int, int] = (40, 40)) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def png(width: int, height: int) -> bytes:
    """A picture in gray whose header has this size, and which has no pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def array(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def parquet(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def scribbled(data: bytes) -> bytes:
    """Other bytes in the middle."""
    middle = len(data) // 2
    return data[:middle] + np.random.default_rng(1).bytes(500) + data[middle + 500 :]


def at(data: bytes, position: int, part: bytes) -> bytes:
    return data[:position] + part + data[position + len(part) :]


def without_length() -> bytes:
    """FLAC whose header has 0 as the number of samples, in the last 36 bits of 8 bytes."""
    data = sound(kind="FLAC")
    return at(data, 21, bytes([data[21] & 0xF0, 0, 0, 0, 0]))


def endless_mp3() -> bytes:
    """An MP3 whose header (Xing) has two thousand million frames."""
    data = sound(kind="MP3")
    position = max(data.find(b"Xing"), data.find(b"Info"))
    return at(data, position + 8, b"\x7f\xff\xff\xff")


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, np.ones((4, 3)))
    return file.getvalue()


LONG_OGG = sound(np.tile(NOISE, 20), "OGG")
"""Of several pages."""
VECTORS = np.ones((4, 3))
TEXT = b"This is no such file.\n" * 50
NAN = np.where(np.arange(8000) == 5, np.nan, NOISE)
ENDS = "ends before its sound"

# kind, name and content of the file, the part of it, a pattern of the reason
Case = tuple[str, str, Callable[[], bytes], str, str]
CASES: list[Case] = [
    ("speech", "empty.wav", lambda: b"", "", r"empty \(0 bytes\)"),
    ("speech", "text.wav", lambda: TEXT, "", "Format not recognised"),
    ("speech", "picture.wav", picture, "", "is PNG, .* data.source_kind=image"),
    ("speech", "array.wav", lambda: array(VECTORS), "", r"is \.npy, .* data.source_kind=vectors"),
    ("speech", "short.wav", lambda: sound(NOISE[:0]), "", "no samples"),
    ("speech", "cut.wav", lambda: half(sound()), "", ENDS),
    ("speech", "header.wav", lambda: sound()[:30], "", "WAV file cannot be read .*'data' chunk"),
    ("speech", "cut.flac", lambda: half(sound(kind="FLAC")), "", "FLAC file cannot be read"),
    ("speech", "cut.mp3", lambda: half(sound(kind="MP3")), "", ENDS),
    ("speech", "cut.ogg", lambda: half(LONG_OGG), "", ENDS),
    ("speech", "cut_page.ogg", lambda: LONG_OGG[:-1], "", ENDS),
    ("speech", "cut_header.ogg", lambda: LONG_OGG[: LONG_OGG.rfind(b"OggS") + 20], "", ENDS),
    ("speech", "two.ogg", lambda: LONG_OGG + LONG_OGG, "", "several streams"),
    ("speech", "codec.wav", lambda: at(sound(), 20, b"\x99"), "", "WAV file cannot be read"),
    ("speech", "ogg.parquet", lambda: parquet({"a": [half(LONG_OGG)]}), "#row=0", ENDS),
    ("speech", "damaged.flac", lambda: scribbled(sound(kind="FLAC")), "", "flac|psf_fseek"),
    ("speech", "damaged.ogg", lambda: scribbled(sound(kind="OGG")), "", f"malformed|{ENDS}"),
    ("speech", "nan.wav", lambda: sound(NAN, subtype="FLOAT"), "", "NaN or infinite"),
    ("speech", "rate.wav", lambda: at(sound(), 24, b"\x01\0\0\0"), "", "a rate of 1 Hz"),
    ("speech", "length.flac", without_length, "", "no length"),
    ("speech", "endless.mp3", endless_mp3, "", ENDS),
    ("speech", "late.wav", sound, "#t=0.5,", r"ends at 0\.5 s"),
    ("speech", "row.wav", sound, "#row=0", "not a Parquet file"),
    ("speech", "a.parquet", lambda: parquet({"a": [b"x"]}), "#row=1", "has 1 rows"),
    ("speech", "b.parquet", lambda: parquet({"a": ["x"]}), "#row=0", "no column has bytes"),
    ("speech", "c.parquet", lambda: parquet({"a": [b"", None]}), "#row=1", "the row has no bytes"),
    ("speech", "d.parquet", lambda: parquet({"a": [TEXT]}), "#row=0", "Format not recognised"),
    ("speech", "e.parquet", lambda: half(parquet({"a": [TEXT]})), "#row=0", "not a Parquet file"),
    ("speech", "f.parquet", lambda: parquet({"a": [{"path": "x.wav"}]}), "#row=0", "no such file"),
    ("speech", "g.parquet", lambda: parquet({"a": [1]}), "#row=0&column=a", "'a' has no bytes"),
    ("speech", "h.parquet", lambda: parquet({"a": [b"x"]}), "#row=0&column=b", "no column 'b'"),
    ("image", "empty.png", lambda: b"", "", "empty"),
    ("image", "text.png", lambda: TEXT, "", "neither PNG nor JPEG"),
    ("image", "sound.png", sound, "", "is WAV, .* data.source_kind=speech"),
    ("image", "sound.jpg", lambda: sound(kind="MP3"), "", "is MP3, .* data.source_kind=speech"),
    ("image", "other.gif", lambda: picture("GIF"), "", "neither PNG nor JPEG"),
    ("image", "cut.png", lambda: half(picture()), "", "PNG file cannot be read"),
    ("image", "cut.jpg", lambda: half(picture("JPEG")), "", "JPEG file cannot be read"),
    ("image", "damaged.png", lambda: scribbled(picture()), "", "data stream"),
    ("image", "bomb.png", lambda: png(30_000, 30_000), "", "has more than .* pixels"),
    ("image", "large.png", lambda: png(10_000, 10_000), "", "has more than .* pixels"),
    ("image", "zero.png", lambda: png(0, 8), "", "PNG file cannot be read"),
    ("image", "flat.png", lambda: picture(size=(1, 90_000)), "", "pixels wide"),
    ("image", "times.png", picture, "#t=1,2", "no times"),
    ("vectors", "empty.npy", lambda: b"", "", "empty"),
    ("vectors", "text.npy", lambda: TEXT, "", r"not \.npy"),
    ("vectors", "picture.npy", picture, "", "is PNG, .* data.source_kind=image"),
    ("vectors", "archive.npz", npz, "", r"not \.npy"),
    ("vectors", "cut.npy", lambda: array(VECTORS)[:-8], "", "not an array"),
    ("vectors", "header.npy", lambda: array(VECTORS)[:20], "", "not an array"),
    ("vectors", "pickled.npy", lambda: array(np.array([[{}, 1, 2]])), "", "[Oo]bject"),
    ("vectors", "text_array.npy", lambda: array(np.array([["a"] * 3])), "", "array of <U1"),
    ("vectors", "complex.npy", lambda: array(VECTORS * 1j), "", "array of complex128"),
    ("vectors", "narrow.npy", lambda: array(VECTORS[:, :2]), "", "2 channels, not the 3"),
    ("vectors", "flat.npy", lambda: array(VECTORS[0]), "", r"shape \(3,\)"),
    ("vectors", "none.npy", lambda: array(VECTORS[:0]), "", r"shape \(0, 3\)"),
    ("vectors", "nan.npy", lambda: array(VECTORS * np.nan), "", "NaN"),
    ("vectors", "large.npy", lambda: array(VECTORS * 1e300), "", "NaN or infinite as float32"),
    ("vectors", "speed.npy", lambda: array(VECTORS), "#speed=0.9", "no speed"),
]


def message(kind: str, source: str) -> str:
    """The one line of the error, which begins with the source and ends with the advice."""
    with pytest.raises(InputError) as error:
        EXTRACTORS[kind].vectors(source)
    text = str(error.value)
    assert text.startswith(f"{source}: ") and text.isprintable()
    assert re.search(r"; \w+ ", text), "what to do"
    return text.removeprefix(source)


@pytest.mark.parametrize(
    ("kind", "name", "content", "part", "reason"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES]
)
def test_bad_files(
    tmp_path: Path, kind: str, name: str, content: Callable[[], bytes], part: str, reason: str
) -> None:
    (tmp_path / name).write_bytes(content())
    assert re.search(reason, message(kind, f"{tmp_path / name}{part}"))


@pytest.mark.parametrize("kind", EXTRACTORS)
def test_no_file(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no such file" in message(kind, f"{tmp_path}/none")
    assert "a folder" in message(kind, str(tmp_path))
    (tmp_path / "secret").write_bytes(b"secret")

    def refuse(*arguments: Any) -> None:
        raise PermissionError(13, "Permission denied")

    # A test as root may read every file.
    monkeypatch.setattr("transformer.data.features.reference.open", refuse, raising=False)
    assert "permission denied" in message(kind, f"{tmp_path}/secret")


def test_a_name_of_two_lines(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        EXTRACTORS["speech"].vectors(f"{tmp_path}/a\nb.wav")
    assert "\n" not in str(error.value) and r"a\nb.wav" in str(error.value)
