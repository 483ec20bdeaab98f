"""Windows of a long sound: where they are cut, and those that are filled to one length."""

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

    A cut is a `quietest_cut` of ``speech.window`` samples, by their energy. One window is in memory
    at a time. Raises as `read_audio`.
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
        cut = quietest_cut(np.square(samples, dtype=np.float64), size, speech.window)
        following = start + cut / speech.sample_rate * second
        yield start, following, samples[:cut]
        start = following


def quietest_cut(loudness: Float[np.ndarray, " step"], size: int, width: int = 1) -> int:
    """Where a window of at most ``size`` steps ends, so that the cut is in no word.

    It is in the last fifth, in the middle of the ``width`` steps of the least loudness; the first
    of equal ones.
    """
    first = max(1, size - size // 5)
    loudness = loudness[first : size + 1]
    width = min(width, len(loudness))
    total = np.concatenate([[0.0], np.cumsum(loudness, dtype=np.float64)])
    return first + int((total[width:] - total[:-width]).argmin()) + width // 2
