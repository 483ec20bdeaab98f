"""The sounds of the pocket sentences: chosen by the sentence, written once, in all lists."""

import shutil
import sys
from pathlib import Path

import pytest

from scripts.pocket_speech import (
    SAMPLE_RATE,
    SPEEDS,
    UNHEARD_VOICE,
    VOICES,
    main,
    pocket_pairs,
    speak,
    utterance,
    write,
)
from transformer.common.errors import InputError

PAIRS = {
    "train": [("The dog is sleeping.", "Der Hund schläft."), ("We sing.", "Wir singen.")],
    "validation": [("You read a letter.", "Du liest einen Brief.")],
    "test": [("A café is small.", "Ein Café ist klein."), ("Anna swims.", "Anna schwimmt.")],
}

spoken = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="no espeak-ng here")


def read(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text("utf-8").splitlines()]


def test_a_sentence_has_its_voice_and_speed_and_all_are_heard() -> None:
    sentences = [english for english, _ in dict(pocket_pairs(500, 1))["train"]]
    chosen = [utterance(sentence) for sentence in sentences]
    assert chosen == [utterance(sentence) for sentence in sentences]
    assert {item.voice for item in chosen} == set(VOICES)
    assert {item.speed for item in chosen} == set(SPEEDS)
    assert UNHEARD_VOICE not in VOICES
    assert len({item.path for item in chosen}) == len(set(sentences))


def test_the_pairs_are_those_of_pocket() -> None:
    splits = dict(pocket_pairs(3, None))
    assert {split: len(pairs) for split, pairs in splits.items()} == {
        "train": 3,
        "validation": 500,
        "test": 1000,
    }
    assert splits["test"][0] == (
        "In the evening you photograph my granddaughter.",
        "Am Abend fotografierst du meine Enkelin.",
    )


@spoken
def test_the_sounds_and_lists_of_five_sentences(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    assert write(tmp_path, PAIRS, jobs=2) == 7
    for split in ("train", "validation", "test", "test_voice"):
        pairs = PAIRS[split.removesuffix("_voice")]
        english, german = (read(tmp_path / f"{split}.{language}.tsv") for language in ("en", "de"))
        assert [(row[1], other[1]) for row, other in zip(english, german, strict=True)] == pairs
        assert [row[0] for row in english] == [row[0] for row in german]
        for path, _ in english:
            samples, rate = soundfile.read(tmp_path / path, dtype="int16")
            assert rate == SAMPLE_RATE and samples.ndim == 1
            assert 0.4 * rate < len(samples) < 3 * rate and abs(samples).max() > 3000
    heard = {path for split in PAIRS for path, _ in read(tmp_path / f"{split}.en.tsv")}
    assert not heard & {path for path, _ in read(tmp_path / "test_voice.en.tsv")}


@spoken
def test_what_is_there_is_kept_and_what_is_not_becomes_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    write(tmp_path, PAIRS, jobs=1)
    sounds = {path: path.read_bytes() for path in tmp_path.glob("sounds/*/*")}
    times = {path: path.stat().st_mtime_ns for path in sounds}
    lost = min(sounds)
    lost.unlink()
    assert write(tmp_path, PAIRS, jobs=1) == 1
    assert {path: path.read_bytes() for path in tmp_path.glob("sounds/*/*")} == sounds
    del times[lost]
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


@spoken
def test_a_voice_that_espeak_has_not_is_named(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    with pytest.raises(InputError, match=r"as xx-none: .+"):
        speak(utterance("We sing.", ["xx-none"]), tmp_path / "a.flac")
    assert not list(tmp_path.iterdir())


def test_without_espeak_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["pocket_speech", str(tmp_path / "new")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "espeak-ng is not installed: apt-get install espeak-ng\n"
    assert not (tmp_path / "new").exists()
