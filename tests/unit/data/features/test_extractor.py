"""Rows of batches: frames in groups, patches, arrays; their augmentation and names."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from transformer.common.packages import MissingPackage
from transformer.data.features.audio import read_audio
from transformer.data.features.augmentation import masked, moved
from transformer.data.features.extractor import FeatureExtractor
from transformer.data.features.log_mel import log_mel
from transformer.data.features.pictures import picture_of, read_picture
from transformer.data.features.reference import Reference
from transformer.settings.sources import ImageConfig, SourceConfig, SpeechConfig, VectorsConfig

RANDOM = np.random.default_rng(1)
SPEECH = SpeechConfig(mels=8, time_masks=2, time_mask=9, frequency_masks=1, frequency_mask=3)
IMAGE = ImageConfig(height=8, patch_height=4, patch_width=2, channels=3, shift=2, flip=0.5)


@pytest.fixture
def sound(tmp_path: Path) -> str:
    soundfile.write(tmp_path / "a.wav", 0.1 * RANDOM.standard_normal(160 * 41), 16_000)
    return f"{tmp_path}/a.wav"


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_speech(sound: str, stride: int) -> None:
    config = SourceConfig("speech", stride, speech=SPEECH)
    extractor = FeatureExtractor(config)
    row = extractor.vectors(sound)
    frames = log_mel(read_audio(Reference(sound), 16_000), SPEECH)
    assert frames.shape == (41, 8)
    assert row.shape == (-(-41 // stride), config.channels) and row.dtype == np.float32
    # length (frame mel) -> (length frame) mel
    flat = row.reshape(-1, 8)
    assert np.array_equal(flat[:41], frames) and np.isnan(flat[41:]).all()
    augmented = extractor.augmented(row, 7).reshape(-1, 8)
    assert np.array_equal(augmented[:41], masked(frames, SPEECH, np.random.default_rng(7)))
    assert (augmented[:41] != frames).any() and np.isnan(augmented[41:]).all()


def test_pictures(tmp_path: Path) -> None:
    Image.fromarray(RANDOM.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    config = SourceConfig("image", image=IMAGE)
    extractor = FeatureExtractor(config)
    row = extractor.vectors(f"{tmp_path}/a.png")
    picture = read_picture(Reference(f"{tmp_path}/a.png"), IMAGE)
    assert row.shape == (2 * 6, config.channels) == (12, 24)
    assert np.array_equal(picture_of(row, IMAGE), picture)
    augmented = picture_of(extractor.augmented(row, 7), IMAGE)
    assert np.array_equal(augmented, moved(picture, IMAGE, np.random.default_rng(7)))
    assert extractor.labels(row) == [f"{line},{column}" for line in (0, 1) for column in range(6)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", ">f4"])
def test_arrays(tmp_path: Path, dtype: str) -> None:
    array = RANDOM.integers(0, 100, (5, 3)).astype(dtype)
    np.save(tmp_path / "a.npy", np.asfortranarray(array))
    extractor = FeatureExtractor(SourceConfig("vectors", vectors=VectorsConfig(channels=3)))
    row = extractor.vectors(f"{tmp_path}/a.npy")
    assert row.dtype == np.float32 and row.flags.c_contiguous
    assert np.array_equal(row, array) and np.array_equal(extractor.augmented(row, 7), row)
    assert extractor.labels(row) == ["0", "1", "2", "3", "4"]


def test_a_seed_augments(sound: str) -> None:
    extractor = FeatureExtractor(SourceConfig("speech", 4, speech=SPEECH))
    row = extractor.vectors(sound)
    kept = row.copy()
    for seed in (0, 2**64 - 1):
        training = extractor.vectors(sound, training_seed=seed)
        np.testing.assert_array_equal(training, extractor.augmented(row, seed))
        assert not np.array_equal(training, row, equal_nan=True)
    np.testing.assert_array_equal(row, kept)


def test_names_of_frames(sound: str) -> None:
    extractor = FeatureExtractor(SourceConfig("speech", 4, speech=SPEECH))
    names = extractor.labels(extractor.vectors(sound))
    assert names == [f"{index * 0.04:.2f}s" for index in range(11)]


def test_a_missing_package_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer.common.packages.find_spec", lambda name: None)
    FeatureExtractor(SourceConfig("vectors"))
    for kind in ("speech", "image"):
        with pytest.raises(MissingPackage, match="needs"):
            FeatureExtractor(SourceConfig(kind))  # type: ignore[arg-type]
