"""Sounds of any file, rate and number of channels, parts of them, and their speed."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from transformer.common.errors import InputError
from transformer.common.packages import MissingPackage
from transformer.data.features.audio import read_audio, sound_seconds
from transformer.data.features.reference import Reference

RATE = 16_000


def tone(seconds: float = 1.0, rate: int = RATE, hertz: float = 440) -> np.ndarray:
    """A sine that begins and ends at zero slowly, so that resampling has no edges."""
    time = np.arange(round(seconds * rate)) / rate
    return 0.5 * np.sin(2 * np.pi * hertz * time) * np.sin(np.pi * time / seconds) ** 2


def read(source: object, rate: int = RATE) -> np.ndarray:
    return read_audio(Reference.parse(str(source)), rate)


@pytest.mark.parametrize(
    ("name", "options", "tolerance"),
    [
        ("a.wav", {}, 2**-15),
        ("a.wav", {"subtype": "FLOAT"}, 1e-7),
        ("a.flac", {}, 2**-15),
        ("a.ogg", {}, 0.05),
        ("a.mp3", {}, 0.05),
    ],
)
def test_formats(tmp_path: Path, name: str, options: dict[str, str], tolerance: float) -> None:
    sound = tone()
    soundfile.write(tmp_path / name, sound, RATE, **options)
    samples = read(tmp_path / name)
    assert samples.dtype == np.float32 and samples.shape == sound.shape
    assert np.abs(samples - sound).max() <= tolerance


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000])
def test_other_rates(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", tone(rate=rate), rate, subtype="FLOAT")
    np.testing.assert_allclose(read(tmp_path / "a.wav"), tone(), atol=1e-3)


def test_channels_are_averaged(tmp_path: Path) -> None:
    channels = np.stack([tone(), -0.5 * tone(hertz=200), tone(hertz=600)], axis=1)
    soundfile.write(tmp_path / "a.wav", channels, RATE, subtype="FLOAT")
    np.testing.assert_allclose(read(tmp_path / "a.wav"), channels.mean(axis=1), atol=1e-7)


def test_long_sounds_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "a.wav", np.stack([tone(), tone()], axis=1), RATE)
    whole = read(tmp_path / "a.wav")
    monkeypatch.setattr("transformer.data.features.audio._BLOCK", 1999)
    assert np.array_equal(read(tmp_path / "a.wav"), whole)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg"])
def test_parts(tmp_path: Path, name: str) -> None:
    soundfile.write(tmp_path / name, tone(), RATE)
    whole = read(tmp_path / name)
    for part, expected in {
        "t=0.25,0.5": whole[4000:8000],
        "t=,0.5": whole[:8000],
        "t=0.25": whole[4000:],
        "t=0.75,9": whole[12000:],
    }.items():
        assert np.array_equal(read(f"{tmp_path / name}#{part}"), expected), part


@pytest.mark.parametrize("speed", [0.5, 0.9, 1.1])
def test_speed_changes_tempo_and_pitch(tmp_path: Path, speed: float) -> None:
    soundfile.write(tmp_path / "a.wav", tone(), RATE, subtype="FLOAT")
    samples = read(f"{tmp_path}/a.wav#speed={speed}")
    assert abs(len(samples) - RATE / speed) <= 1
    loudest = np.abs(np.fft.rfft(samples)).argmax() * RATE / len(samples)
    assert loudest == pytest.approx(440 * speed, abs=2)


def test_a_part_is_cut_before_its_speed_changes(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(), RATE)
    assert len(read(f"{tmp_path}/a.wav#t=0.25,0.75&speed=0.5")) == RATE


def test_rows_of_parquet(tmp_path: Path) -> None:
    data = io.BytesIO()
    soundfile.write(data, tone(), RATE, format="FLAC")
    pq.write_table(pa.table({"audio": [b"", data.getvalue()]}), tmp_path / "a.parquet")
    samples = read(f"{tmp_path}/a.parquet#row=1&t=0.5,")
    np.testing.assert_allclose(samples, tone()[8000:], atol=2**-15)


def test_a_wav_that_was_written_to_a_pipe(tmp_path: Path) -> None:
    """Its header says that it is as long as can be."""
    soundfile.write(tmp_path / "a.wav", tone(), RATE)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    size = data.index(b"data") + 4
    data[size : size + 4] = data[4:8] = b"\xff" * 4
    (tmp_path / "b.wav").write_bytes(data)
    assert np.array_equal(read(tmp_path / "b.wav"), read(tmp_path / "a.wav"))


@pytest.mark.parametrize("tags", [0, 5000])
def test_an_mp3_that_does_not_know_its_length(tmp_path: Path, tags: int) -> None:
    """Of frames of any size, without Xing's header: libsndfile guesses by the first frame.

    One with the header that is as much too short is cut; tags before it change nothing.
    """
    data = io.BytesIO()
    noise = np.random.default_rng(1).standard_normal(RATE)
    sound = np.append(0.3 * noise, np.zeros(4 * RATE))[::-1]
    soundfile.write(data, sound, RATE, format="MP3", bitrate_mode="VARIABLE")
    whole = data.getvalue()
    tag = b"ID3\4\0\0" + bytes([0, 0, tags >> 7, tags & 127]) + bytes(tags) if tags else b""
    (tmp_path / "a.mp3").write_bytes(tag + whole[whole.index(whole[:2], 200) :])
    (tmp_path / "b.mp3").write_bytes(tag + whole[:-1000])
    (tmp_path / "c.mp3").write_bytes(tag + whole)
    assert abs(len(read(tmp_path / "a.mp3")) - len(sound)) < 2000
    with pytest.raises(InputError, match="ends before its sound"):
        read(tmp_path / "b.mp3")
    assert len(read(tmp_path / "c.mp3")) == len(sound)


def mp3(sound: np.ndarray, rate: int = RATE) -> bytes:
    data = io.BytesIO()
    soundfile.write(data, sound, rate, format="MP3", bitrate_mode="VARIABLE")
    return data.getvalue()


@pytest.mark.parametrize("rate", [8_000, RATE, 44_100])
@pytest.mark.parametrize("tags", [b"", b"TAG" + b"\xff" * 125], ids=["nothing", "tags"])
def test_mp3_one_after_another_are_refused(tmp_path: Path, rate: int, tags: bytes) -> None:
    """libsndfile reads as much as the header of the first says."""
    first = mp3(tone(rate=rate), rate) + tags
    (tmp_path / "a.mp3").write_bytes(first)
    assert len(read(tmp_path / "a.mp3", rate)) == rate
    (tmp_path / "b.mp3").write_bytes(first + mp3(tone(2.0, rate), rate))
    for use in (read, lambda path: sound_seconds(Reference(str(path)))):
        with pytest.raises(InputError, match="more sound than its first frame says"):
            use(tmp_path / "b.mp3")


def test_an_mp3_of_which_too_little_would_be_read(tmp_path: Path) -> None:
    """Without Xing's header, the length is a guess by the first frame, which is large here."""
    noise = np.random.default_rng(1).standard_normal(RATE)
    whole = mp3(np.append(0.3 * noise, np.zeros(9 * RATE)))
    (tmp_path / "a.mp3").write_bytes(whole[whole.index(whole[:2], 4) :])
    with pytest.raises(InputError, match="more sound than its first frame says"):
        read(tmp_path / "a.mp3")


def ogg(subtype: str, seconds: float = 1.0) -> bytes:
    data = io.BytesIO()
    soundfile.write(data, tone(seconds), RATE, format="OGG", subtype=subtype)
    return data.getvalue()


OGG = pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])


@pytest.mark.parametrize(
    ("subtype", "tags"),
    [
        *(
            (subtype, tags)
            for subtype in ("VORBIS", "OPUS")
            for tags in (b"TAG" + bytes(125), b"Oggs")
        ),
        # More than a page has (65,307), which libsndfile 1.2 takes for damage after Opus.
        ("VORBIS", b"APETAGEX" + bytes(90_000)),
    ],
)
def test_ogg_with_tags_at_the_end(tmp_path: Path, subtype: str, tags: bytes) -> None:
    (tmp_path / "a.ogg").write_bytes(ogg(subtype) + tags)
    samples = read(tmp_path / "a.ogg")
    assert len(samples) == RATE
    np.testing.assert_allclose(samples, tone(), atol=0.05)


@OGG
def test_ogg_whose_last_page_is_not_marked_as_the_end(tmp_path: Path, subtype: str) -> None:
    """That of a recorder that was switched off: whole pages without the last."""
    whole = ogg(subtype, 20.0)
    end = whole.rfind(b"OggS")
    last = whole.rfind(b"OggS", 0, end)
    assert not whole[last + 5] & 4
    (tmp_path / "a.ogg").write_bytes(whole[:end])
    samples = read(tmp_path / "a.ogg")
    # A page has the number of samples up to its end; Opus counts at 48 kHz, from 312 on.
    position = int.from_bytes(whole[last + 6 : last + 14], "little")
    assert len(samples) == (position if subtype == "VORBIS" else (position - 312) // 3)
    assert len(samples) > 15 * RATE
    np.testing.assert_allclose(samples, tone(20.0)[: len(samples)], atol=0.05)


@OGG
def test_ogg_that_is_cut(tmp_path: Path, subtype: str) -> None:
    """In its last page, in the header of that, or in the name of the page."""
    whole = ogg(subtype, 20.0)
    last = whole.rfind(b"OggS")
    for end in (len(whole) - 1, last + 40, last + 27, last + 20, last + 4, last + 1):
        (tmp_path / "a.ogg").write_bytes(whole[:end])
        with pytest.raises(InputError, match="ends before its sound"):
            read(tmp_path / "a.ogg")


@OGG
@pytest.mark.parametrize("between", [b"", b"TAG" + bytes(125)], ids=["nothing", "tags"])
def test_ogg_streams_one_after_another_are_refused(
    tmp_path: Path, subtype: str, between: bytes
) -> None:
    """libsndfile reads the first alone, as if it were the whole."""
    (tmp_path / "a.ogg").write_bytes(ogg(subtype, 20.0) + between + ogg(subtype, 20.0))
    with pytest.raises(InputError, match=r"several streams .* one after another"):
        read(tmp_path / "a.ogg")
    with pytest.raises(InputError, match=r"several streams .* one after another"):
        sound_seconds(Reference.parse(f"{tmp_path}/a.ogg"))


@pytest.mark.parametrize("package", ["soundfile", "soxr"])
def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    def find(name: str) -> Any:
        return None if name == package else name

    monkeypatch.setattr("transformer.common.packages.find_spec", find)
    with pytest.raises(MissingPackage, match=rf"needs {package}: .*\[speech\]"):
        read("a.wav")
