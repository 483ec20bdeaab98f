"""Masks, shifts and flips are functions of source and seed, and stay within their bounds."""

import numpy as np
import pytest

from transformer.data.features.augmentation import masked, moved
from transformer.settings.sources import ImageConfig, SpeechConfig

FRAMES = np.random.default_rng(1).standard_normal((100, 30)).astype(np.float32)
PICTURE = np.random.default_rng(2).standard_normal((6, 9, 3)).astype(np.float32)


def spans(changed: np.ndarray) -> int:
    """How many stretches of True there are."""
    return int(np.diff(changed.astype(int), prepend=0).clip(0).sum())


def mask(config: SpeechConfig, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The frames and the mels that are masked."""
    copy = FRAMES.copy()
    result = masked(copy, config, np.random.default_rng(seed))
    assert np.array_equal(copy, FRAMES) and result.dtype == np.float32
    changed = result != FRAMES
    np.testing.assert_allclose(result[changed], FRAMES.mean(), atol=1e-6)
    times, mels = changed.all(axis=1), changed.all(axis=0)
    assert np.array_equal(changed, times[:, None] | mels), "a mask covers all of a frame or mel"
    return times, mels


def test_masks_in_time() -> None:
    config = SpeechConfig(mels=30, time_masks=1, time_mask=12, time_mask_share=1.0)
    sizes = []
    covered = np.zeros(100, bool)
    for seed in range(400):
        times, mels = mask(config, seed)
        assert not mels.any() and spans(times) <= 1
        sizes.append(times.sum())
        covered |= times
    assert set(sizes) == set(range(13)) and covered.all()


def test_masks_in_frequency() -> None:
    config = SpeechConfig(mels=30, frequency_masks=1, frequency_mask=5)
    sizes = []
    covered = np.zeros(30, bool)
    for seed in range(300):
        times, mels = mask(config, seed)
        assert not times.any() and spans(mels) <= 1
        sizes.append(mels.sum())
        covered |= mels
    assert set(sizes) == set(range(6)) and covered.all()


def test_several_masks_and_the_share_of_a_short_sound() -> None:
    config = SpeechConfig(
        mels=30, time_masks=2, time_mask=90, time_mask_share=0.1, frequency_masks=2
    )
    results = [mask(config, seed) for seed in range(50)]
    assert max(spans(times) for times, _ in results) == 2
    assert max(times.sum() for times, _ in results) <= 20
    one = masked(FRAMES[:1], config, np.random.default_rng(1))
    assert one.shape == (1, 30)


def test_no_masks() -> None:
    times, mels = mask(SpeechConfig(mels=30), 1)
    assert not times.any() and not mels.any()


def test_moves() -> None:
    """Every shift occurs; the pixels are those of the edge where the picture has none."""
    image = ImageConfig(shift=2)
    shifts = set()
    for seed in range(300):
        result = moved(PICTURE, image, np.random.default_rng(seed))
        assert result.shape == PICTURE.shape
        found = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if np.array_equal(
                result,
                PICTURE[np.arange(down, down + 6).clip(0, 5)][
                    :, np.arange(right, right + 9).clip(0, 8)
                ],
            )
        ]
        assert len(found) == 1
        shifts.update(found)
    assert len(shifts) == 25


@pytest.mark.parametrize(("flip", "expected"), [(0.0, 0), (0.5, 100), (1.0, 200)])
def test_flips(flip: float, expected: int) -> None:
    image = ImageConfig(flip=flip)
    flips = 0
    for seed in range(200):
        result = moved(PICTURE, image, np.random.default_rng(seed))
        mirrored = np.array_equal(result, PICTURE[:, ::-1])
        assert mirrored or np.array_equal(result, PICTURE)
        flips += mirrored
    assert abs(flips - expected) <= (0 if flip in (0, 1) else 30)
