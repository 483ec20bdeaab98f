"""Changes of a training source: masks of a sound, shifts and flips of a picture.

Each is a pure function of the source and a random generator.
"""

import numpy as np
from jaxtyping import Float

from transformer.settings.sources import ImageConfig, SpeechConfig

Frames = Float[np.ndarray, "frame mel"]
Picture = Float[np.ndarray, "height width channel"]


def masked(frames: Frames, speech: SpeechConfig, random: np.random.Generator) -> Frames:
    """Mask bands of frequency and stretches of time (SpecAugment, Park et al. 2019, section 2).

    A mask in frequency covers ``f`` mels from ``f0``: f is uniform in 0..F, f0 in 0..(ν - f), of ν
    mels. A mask in time covers ``t`` frames from ``t0`` likewise, t at most T and p times the
    frames. F, T and p are `SpeechConfig`'s ``frequency_mask``, ``time_mask`` and
    ``time_mask_share``.

    What is masked becomes the mean of the frames. The paper writes 0, in frames that are normalized
    to a mean of 0; these are not. There is no time warping, which gained little there (section 5).
    """
    length, mels = frames.shape
    mean = frames.mean(dtype=np.float64)
    result = frames.copy()
    for _ in range(speech.frequency_masks):
        size = int(random.integers(min(speech.frequency_mask, mels), endpoint=True))
        start = int(random.integers(mels - size, endpoint=True))
        result[:, start : start + size] = mean
    most = min(speech.time_mask, int(speech.time_mask_share * length))
    for _ in range(speech.time_masks):
        size = int(random.integers(most, endpoint=True))
        start = int(random.integers(length - size, endpoint=True))
        result[start : start + size] = mean
    return result


def moved(picture: Picture, image: ImageConfig, random: np.random.Generator) -> Picture:
    """Cut a picture out of itself with a border, at a random place, and perhaps mirror it.

    The border repeats the pixels of the edge, ``image.shift`` times (Krizhevsky et al. 2012,
    section 4.1, cut so out of a larger picture). A flip, left for right, has a probability of
    ``image.flip``.
    """
    height, width, _ = picture.shape
    border = image.shift
    down, right = (int(number) for number in random.integers(2 * border, size=2, endpoint=True))
    flips = random.random() < image.flip
    bordered = np.pad(picture, ((border, border), (border, border), (0, 0)), mode="edge")
    cut = bordered[down : down + height, right : right + width]
    return np.ascontiguousarray(cut[:, ::-1] if flips else cut)
