"""Windows of a long sound, each of which is filled to one length."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from transformer.data.features.audio import read_audio, sound_seconds
from transformer.data.features.reference import Reference
from transformer.settings.sources import SpeechConfig


def sound_windows(
    reference: Reference, speech: SpeechConfig
) -> Iterator[tuple[float, float, Float[np.ndarray, " sample"]]]:
    """Read a sound in windows of at most ``speech.seconds``: start, end (seconds), and samples.

    A cut is in the last fifth of a window, in the middle of the ``speech.window`` samples of the
    least energy. One window is in memory at a time. Raises as `read_audio`.
    """
    assert speech.seconds is not None
    size = max(1, round(speech.seconds * speech.sample_rate))
    # Times are those of the file, before its speed changes.
    second = reference.speed
    start = reference.start
    end = start + sound_seconds(reference)
    while True:
        is_last = start + speech.seconds * second >= end - 1e-6
        stop = reference.end if is_last else start + speech.seconds * second
        samples = read_audio(replace(reference, start=start, end=stop), speech.sample_rate)
        if is_last:
            yield start, end, samples
            return
        first = max(1, size - size // 5)
        cut = first + _quietest(samples[first:size], speech.window)
        following = start + cut / speech.sample_rate * second
        yield start, following, samples[:cut]
        start = following


def _quietest(samples: Float[np.ndarray, " sample"], width: int) -> int:
    """The middle of the ``width`` samples of the least energy; the first of equal ones."""
    width = min(width, len(samples))
    total = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    return int((total[width:] - total[:-width]).argmin()) + width // 2
