"""Disturbances of sounds, pictures and arrays keep their size, and change what they say."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.helpers.decoding.file_translators import (
    file_tokenizer,
    file_translator,
    write_picture,
    write_sound,
)
from transformer.data.features.read_source import ReadSource
from transformer.quality.file_disturbances import (
    blurred,
    clipped,
    file_disturbances,
    rotated,
    with_noise,
)
from transformer.quality.stress import StressTest, disturbances_of
from transformer.settings.metrics import MetricsConfig
from transformer.settings.sources import ImageConfig


@pytest.mark.parametrize("decibels", [20.0, 0.0])
def test_noise_has_the_asked_power(decibels: float) -> None:
    signal = np.sin(np.arange(50_000) / 7).astype(np.float32)
    noise = with_noise(signal, decibels, Random(1)) - signal
    measured = 10 * np.log10(np.mean(signal**2) / np.mean(noise**2))
    assert measured == pytest.approx(decibels, abs=0.2)
    silence = np.zeros(10, np.float32)
    np.testing.assert_array_equal(with_noise(silence, decibels, Random(1)), silence)


def test_clipping_cuts_a_tenth() -> None:
    samples = np.linspace(-1, 1, 1001)
    cut = clipped(samples, Random(1))
    assert np.abs(cut).max() == pytest.approx(0.9)
    assert (cut != samples).mean() == pytest.approx(0.1, abs=0.01)


def test_a_blur_is_the_binomial_filter() -> None:
    image = ImageConfig()
    point = np.zeros((9, 9, 1))
    point[4, 4] = 1
    row = np.array([1, 4, 6, 4, 1]) / 16
    np.testing.assert_allclose(blurred(point, image, Random(1))[2:7, 2:7, 0], np.outer(row, row))
    even = np.full((4, 5, 3), 0.5)
    np.testing.assert_allclose(blurred(even, image, Random(1)), even)


def test_a_rotation_keeps_the_middle_and_whitens_the_corners() -> None:
    image = ImageConfig(mean=0.5, std=0.5)
    black = np.full((32, 32, 3), -1.0, np.float32)
    turned = rotated(black, image, Random(1))
    assert turned.shape == black.shape
    np.testing.assert_allclose(turned[8:24, 8:24], -1)
    np.testing.assert_allclose(turned[0, 0], 1)


@pytest.mark.parametrize("kind", ["speech", "image"])
def test_all_change_the_vectors_alone(kind: str, tmp_path: Path) -> None:
    tokenizer = file_tokenizer(kind)
    sound = kind == "speech"
    made = write_sound(tmp_path / "a.wav", 3.0) if sound else write_picture(tmp_path / "a.png")
    file = str(made)
    clean = tokenizer.vector_source.opened(file)
    for name, disturbance in file_disturbances(tokenizer).items():
        source, target = disturbance.change([(file, "one two")], Random(7))
        again, _ = disturbance.change([(file, "one two")], Random(7))
        assert isinstance(source, ReadSource) and isinstance(again, ReadSource), name
        assert target == "one two"
        np.testing.assert_array_equal(source.vectors, again.vectors)
        if name in ("slower", "faster"):
            speed = {"slower": 0.9, "faster": 1.1}[name]
            assert len(source.vectors) == pytest.approx(len(clean.vectors) / speed, abs=1)
            assert source.times is not None and source.times.end == pytest.approx(3.0)
        else:
            assert source.vectors.shape == clean.vectors.shape
            assert not np.allclose(source.vectors, clean.vectors, equal_nan=True)


def test_a_stress_test_of_pictures(tmp_path: Path) -> None:
    translator = file_translator("image")
    files = [str(write_picture(tmp_path / f"{n}.png", 8 * n)) for n in range(1, 5)]
    outputs = [one.text for one in translator.translate(files)]
    texts = [(file, (text,)) for file, text in zip(files, outputs, strict=True)]
    known = disturbances_of(translator.tokenizer)
    test = StressTest(translator, None, texts, MetricsConfig(), "wer", disturbances=known)
    report = test.run()
    assert (report.clean, report.clean_failures) == (0, {})
    assert [row.name for row in report.disturbances] == ["blur", "rotation", "pixel_noise"]
    for row in report.disturbances:
        assert (row.changed, row.failures) == (100, {})
        assert row.loss == row.score is not None
