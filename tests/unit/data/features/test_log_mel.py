"""Log-mel frames equal those of Whisper in transformers."""

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from transformer.data.features import log_mel as module
from transformer.data.features.log_mel import log_mel, mel_filters
from transformer.settings.sources import SpeechConfig

RATE = 16_000
TIME = np.arange(3 * RATE) / RATE
RANDOM = np.random.default_rng(1)
# A voice: 29 harmonics of 120 Hz, in syllables.
VOICE = sum(np.sin(2 * np.pi * 120 * k * TIME) / k for k in range(1, 30)) * np.clip(
    np.sin(2 * np.pi * 3 * TIME), 0, 1
)
SOUNDS = {
    "noise": 0.1 * RANDOM.standard_normal(len(TIME)),
    "sine": 0.5 * np.sin(2 * np.pi * 440 * TIME),
    "chirp": 0.3 * np.sin(2 * np.pi * (100 * TIME + 900 * TIME**2)),
    "voice": 0.1 * VOICE + 1e-3 * RANDOM.standard_normal(len(TIME)),
    "click": np.eye(1, len(TIME), 4000)[0],
    "silence": np.zeros(len(TIME)),
    "shorter than a window": RANDOM.standard_normal(201),
}


@pytest.mark.parametrize("mels", [80, 128])
def test_whisper(mels: int) -> None:
    whisper = WhisperFeatureExtractor(feature_size=mels)
    for name, sound in SOUNDS.items():
        waveform = sound.astype(np.float32)
        for seconds, padding in ((30.0, "max_length"), (None, "do_not_pad")):
            expected = whisper(
                waveform, sampling_rate=RATE, padding=padding, return_tensors="np"
            ).input_features[0]
            result = log_mel(waveform, SpeechConfig(mels=mels, seconds=seconds))
            assert result.dtype == np.float32
            np.testing.assert_allclose(result, expected.T, rtol=0, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("mels", [80, 128])
def test_filters(mels: int) -> None:
    expected = WhisperFeatureExtractor(feature_size=mels).mel_filters.T
    np.testing.assert_allclose(mel_filters(mels, RATE, 400), expected, rtol=0, atol=1e-14)


def test_a_filter_has_an_area_of_one_hertz() -> None:
    """Also for a rate whose half is above Whisper's 8000 Hz, and for an odd window."""
    for rate, window in ((44_100, 65_536), (16_000, 16_001)):
        filters = mel_filters(40, rate, window)
        np.testing.assert_allclose(filters.sum(axis=1) * rate / window, 1, atol=1e-3)


@pytest.mark.parametrize("samples", [1, 2, 159, 160, 199, 200, 201, 320, 479])
def test_short_sounds(samples: int) -> None:
    frames = log_mel(RANDOM.standard_normal(samples).astype(np.float32), SpeechConfig())
    assert frames.shape == (max(1, samples // 160), 80)
    assert np.isfinite(frames).all()


def test_a_window_without_overlap() -> None:
    config = SpeechConfig(window=64, hop=64, mels=4)
    assert log_mel(np.ones(10, np.float32), config).shape == (1, 4)
    assert log_mel(np.ones(1000, np.float32), config).shape == (15, 4)


def test_seconds_fill_and_cut() -> None:
    noise = SOUNDS["noise"].astype(np.float32)
    cut = log_mel(noise, SpeechConfig(seconds=1.5))
    assert np.array_equal(cut, log_mel(noise[:24_000], SpeechConfig()))
    filled = log_mel(noise, SpeechConfig(seconds=4.0))
    assert np.array_equal(filled, log_mel(np.append(noise, np.zeros(RATE, "f")), SpeechConfig()))


def test_long_sounds_are_transformed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = SOUNDS["noise"].astype(np.float32)
    whole = log_mel(noise, SpeechConfig())
    monkeypatch.setattr(module, "_BLOCK", 7)
    np.testing.assert_allclose(log_mel(noise, SpeechConfig()), whole, rtol=0, atol=1e-6)
