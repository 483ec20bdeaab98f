"""Windows of a long sound are cut where it is quiet, and each is normalized by itself."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.helpers.sounds import RATE, sound
from transformer.data.features.extractor import FeatureExtractor
from transformer.data.features.log_mel import log_mel
from transformer.data.features.reference import Reference
from transformer.data.features.windows import quietest_cut, sound_windows
from transformer.settings.sources import SourceConfig, SpeechConfig

SPEECH = SpeechConfig(mels=8, seconds=1.0)


def write(file: Path, samples: np.ndarray) -> str:
    soundfile.write(file, samples, RATE, subtype="FLOAT")
    return str(file)


def test_cuts_are_in_pauses(tmp_path: Path) -> None:
    samples = sound(0, 2.5)
    pauses = (0.9, 1.75)
    for pause in pauses:
        samples[round(RATE * (pause - 0.02)) : round(RATE * (pause + 0.02))] = 0
    windows = list(sound_windows(Reference(write(tmp_path / "a.wav", samples)), SPEECH))
    starts = [start for start, _, _ in windows]
    assert starts[0] == 0
    assert starts[1:] == pytest.approx(pauses, abs=0.02)
    assert [end for _, end, _ in windows[:-1]] == starts[1:]
    assert windows[-1][1] == pytest.approx(2.5)
    np.testing.assert_array_equal(np.concatenate([part for _, _, part in windows]), samples)


def test_a_part_of_a_file_keeps_the_times_of_the_file(tmp_path: Path) -> None:
    name = write(tmp_path / "a.wav", sound(1, 4.0))
    windows = list(sound_windows(Reference(name, start=0.5, end=3.25), SPEECH))
    assert windows[0][0] == 0.5
    assert windows[-1][1] == pytest.approx(3.25)
    assert all(0.8 <= end - start <= 1 for start, end, _ in windows[:-1])


def test_each_window_is_normalized_by_itself(tmp_path: Path) -> None:
    quiet = 0.01 * sound(2, 2.0)
    quiet[:RATE] *= 90
    name = write(tmp_path / "a.wav", quiet)
    extractor = FeatureExtractor(SourceConfig("speech", stride=2, speech=SPEECH))
    source = extractor.read(name)
    windows = list(sound_windows(Reference(name), SPEECH))
    assert len(source.windows) == len(windows) >= 2
    assert extractor.window == 50
    for number, (start, end, samples) in enumerate(windows):
        part = source.part(50 * number, 50 * (number + 1))
        assert part.times is not None
        assert (part.times.start, part.times.end) == (start, end)
        expected = log_mel(samples, SPEECH)
        np.testing.assert_array_equal(part.vectors.reshape(-1, 8), expected)


def test_a_cut_is_in_the_middle_of_the_quietest_stretch() -> None:
    """Of the last fifth: before it is not looked, nor beyond the window."""
    loudness = np.ones(30)
    loudness[[3, 22]] = 0
    assert quietest_cut(loudness, 20) == 16
    loudness[18:20] = 0.5
    assert quietest_cut(loudness, 20) == 18
    assert quietest_cut(loudness, 20, width=2) == 19
    assert quietest_cut(loudness, 1) == 1
