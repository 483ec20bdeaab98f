"""Disturbances of ``stress`` for sources that are files: sounds, pictures and arrays.

Each is a pure function of a file and a random generator; what it makes is in memory alone, and its
reference stays. Noise at a signal-to-noise ratio: Hirsch and Pearce 2000, "The Aurora Experimental
Framework". Speed: Ko et al. 2015, "Audio Augmentation for Speech Recognition". Blur, rotation and
noise of pictures: after Hendrycks and Dietterich 2019, arXiv 1903.12261.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from jaxtyping import Float

from transformer.data.features.reference import Reference
from transformer.data.text.parallel import Pair
from transformer.data.text_noise import Disturbance
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.sources import ImageConfig

Samples = Float[np.ndarray, " sample"]
Picture = Float[np.ndarray, "height width channel"]

_CLIPPED = 0.9
"""The quantile of a sound's loudness at which it is clipped."""
_DEGREES = 10.0
_BLURS = 2
_PIXEL_NOISE = 0.1
"""Standard deviation, of pixels from 0 to 1."""


def with_noise(signal: Any, decibels: float, random: Random) -> Any:
    """Add white noise whose power is so many decibels below that of the signal; silence stays."""
    power = float(np.mean(np.square(signal, dtype=np.float64)))
    noise = np.random.default_rng(random.getrandbits(64)).standard_normal(signal.shape)
    return (signal + noise * np.sqrt(power / 10 ** (decibels / 10))).astype(np.float32)


def clipped(samples: Samples, random: Random) -> Samples:
    """Cut off what is louder than nine tenths of the samples, as a recording that is too loud."""
    limit = float(np.quantile(np.abs(samples), _CLIPPED))
    return samples.clip(-limit, limit)


def blurred(picture: Picture, image: ImageConfig, random: Random) -> Picture:
    """Average each pixel with its neighbors, by the weights 1, 2, 1 in both directions, twice."""
    for _ in range(_BLURS):
        for axis in (0, 1):
            bordered = np.pad(
                picture, [(1, 1) if each == axis else (0, 0) for each in range(3)], mode="edge"
            )
            before, after = (np.delete(bordered, end, axis) for end in ([-2, -1], [0, 1]))
            picture = (before + 2 * picture + after) / 4
    return picture


def rotated(picture: Picture, image: ImageConfig, random: Random) -> Picture:
    """Turn by ten degrees to one side or the other; the corners become white."""
    from PIL import Image

    degrees = random.choice((-_DEGREES, _DEGREES))
    white = (1 - image.mean) / image.std
    channels = [
        np.asarray(
            Image.fromarray(np.ascontiguousarray(channel)).rotate(
                degrees, Image.Resampling.BILINEAR, fillcolor=white
            )
        )
        for channel in picture.transpose(2, 0, 1)
    ]
    return np.stack(channels, axis=2)


def with_pixel_noise(picture: Picture, image: ImageConfig, random: Random) -> Picture:
    """Add noise with a standard deviation of a tenth of the range from black to white."""
    noise = np.random.default_rng(random.getrandbits(64)).standard_normal(picture.shape)
    darkest, lightest = ((end - image.mean) / image.std for end in (0.0, 1.0))
    noisy = picture + noise * (_PIXEL_NOISE / image.std)
    return noisy.clip(darkest, lightest).astype(np.float32)


_SOUNDS: dict[str, Callable[[Samples, Random], Samples]] = {
    "noise_20db": lambda samples, random: with_noise(samples, 20.0, random),
    "noise_10db": lambda samples, random: with_noise(samples, 10.0, random),
    "noise_0db": lambda samples, random: with_noise(samples, 0.0, random),
    "clipping": clipped,
}
_SPEEDS = {"slower": 0.9, "faster": 1.1}
_PICTURES: dict[str, Callable[[Picture, ImageConfig, Random], Picture]] = {
    "blur": blurred,
    "rotation": rotated,
    "pixel_noise": with_pixel_noise,
}
_ARRAYS = {"noise_20db": 20.0, "noise_10db": 10.0, "noise_0db": 0.0}


def file_disturbances(tokenizer: Tokenizer) -> Mapping[str, Disturbance]:
    """The disturbances of the files that a tokenizer reads, by name."""
    extractor = tokenizer.vector_source.extractor
    config = extractor.config

    def sound(name: str) -> Callable[[str, Random], str]:
        return lambda source, random: extractor.read(
            source, lambda samples: _SOUNDS[name](samples, random)
        )

    def at_speed(speed: float) -> Callable[[str, Random], str]:
        def changed(source: str, random: Random) -> str:
            reference = Reference.parse(source)
            return extractor.read(str(replace(reference, speed=speed * reference.speed)))

        return changed

    def picture(name: str) -> Callable[[str, Random], str]:
        return lambda source, random: extractor.read(
            source, lambda pixels: _PICTURES[name](pixels, config.image, random)
        )

    def array(decibels: float) -> Callable[[str, Random], str]:
        return lambda source, random: extractor.read(
            source, lambda vectors: with_noise(vectors, decibels, random)
        )

    if config.kind == "speech":
        changes = {name: sound(name) for name in _SOUNDS}
        changes |= {name: at_speed(speed) for name, speed in _SPEEDS.items()}
    elif config.kind == "image":
        changes = {name: picture(name) for name in _PICTURES}
    else:
        changes = {name: array(decibels) for name, decibels in _ARRAYS.items()}
    return {name: Disturbance(name, _source(change), "same") for name, change in changes.items()}


def _source(change: Callable[[str, Random], str]) -> Callable[[Sequence[Pair], Random], Pair]:
    return lambda window, random: (change(window[0][0], random), window[0][1])
