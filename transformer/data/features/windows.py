"""Windows of a long sound."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from transformer.settings.sources import SpeechConfig


def sound_windows(
    samples: Float[np.ndarray, " sample"], speech: SpeechConfig
) -> Iterator[tuple[float, Float[np.ndarray, " sample"]]]:
    """Cut a sound into windows of at most ``speech.seconds``, each with its start in seconds.

    A cut is in the last fifth of a window, in the middle of the ``speech.window`` samples of the
    least energy. Without ``speech.seconds`` there is one window.
    """
    size = len(samples)
    if speech.seconds is not None:
        size = max(1, round(speech.seconds * speech.sample_rate))
    start = 0
    while len(samples) - start > size:
        first = start + max(1, size - size // 5)
        end = first + _quietest(samples[first : start + size], speech.window)
        yield start / speech.sample_rate, samples[start:end]
        start = end
    yield start / speech.sample_rate, samples[start:]


def _quietest(samples: Float[np.ndarray, " sample"], width: int) -> int:
    """The middle of the ``width`` samples of the least energy; the first of equal ones."""
    width = min(width, len(samples))
    total = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    return int((total[width:] - total[:-width]).argmin()) + width // 2
