"""Sound to log-mel frames, as Whisper's (Radford et al. 2022, section 2.2).

A frame is the energy of ``window`` samples in ``mels`` bands of frequency. The bands are equally
wide on the mel scale, which is linear up to 1000 Hz and logarithmic above, as pitch is heard.
"""

from functools import cache

import numpy as np
from jaxtyping import Float

from transformer.settings.sources import SpeechConfig

# Slaney 1998, Auditory Toolbox: 200/3 Hz to a mel up to 1000 Hz, then 27 mels to a factor of 6.4.
_LINEAR = 200 / 3
_BREAK = 1000.0
_LOG_STEP = np.log(6.4) / 27

_BLOCK = 4096


def mel_filters(mels: int, sample_rate: int, window: int) -> Float[np.ndarray, "mel bin"]:
    """Triangles from 0 Hz to half the rate, over the ``window // 2 + 1`` bins of the transform.

    Each has an area of 1 Hz. Slaney's scale and norm, as in librosa and Whisper. float64.
    """
    highest = _mel_of(np.array([sample_rate / 2]))[0]
    corners = _hertz_of(np.linspace(0, highest, mels + 2))
    bins = np.arange(window // 2 + 1) * (sample_rate / window)
    left, peak, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising = (bins - left) / (peak - left)
    falling = (right - bins) / (right - peak)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (right - left)


def _mel_of(hertz: Float[np.ndarray, " number"]) -> Float[np.ndarray, " number"]:
    logarithmic = _BREAK / _LINEAR + np.log(np.maximum(hertz, _BREAK) / _BREAK) / _LOG_STEP
    return np.where(hertz < _BREAK, hertz / _LINEAR, logarithmic)


def _hertz_of(mels: Float[np.ndarray, " number"]) -> Float[np.ndarray, " number"]:
    exponential = _BREAK * np.exp(_LOG_STEP * (mels - _BREAK / _LINEAR))
    return np.where(mels < _BREAK / _LINEAR, mels * _LINEAR, exponential)


def log_mel(
    waveform: Float[np.ndarray, " sample"], config: SpeechConfig
) -> Float[np.ndarray, "frame mel"]:
    """Return ``(max(log10(max(F |STFT|², 1e-10)), highest - 8) + 4) / 4`` as float32.

    ``F`` are the `mel_filters`, and ``highest`` is the largest logarithm of the sound. The STFT has
    a periodic Hann window around each ``hop``-th sample; both ends of the sound are mirrored. There
    are ``len(waveform) // hop`` frames, as the last is dropped.

    With ``config.seconds`` the sound is first filled with zeros, or cut, to that length. Otherwise,
    a sound that is too short to be mirrored is filled with zeros, and gives one frame.
    """
    window, hop = config.window, config.hop
    hann, bands = _weights(config.mels, config.sample_rate, window)
    samples = waveform.astype(np.float32, copy=False)
    if config.seconds is not None:
        samples = samples[: round(config.seconds * config.sample_rate)]
        shortest = round(config.seconds * config.sample_rate)
    else:
        shortest = max(window // 2 + 1, hop)
    samples = np.pad(samples, (0, max(0, shortest - len(samples))))
    mirrored = np.pad(samples, window // 2, mode="reflect")
    # sample -> frame window
    frames = np.lib.stride_tricks.sliding_window_view(mirrored, window)[::hop]
    frames = frames[: len(samples) // hop]
    energies = np.empty((len(frames), config.mels), np.float32)
    for start in range(0, len(frames), _BLOCK):
        block = slice(start, start + _BLOCK)
        spectrum = np.fft.rfft(frames[block] * hann)
        power = spectrum.real**2 + spectrum.imag**2
        for mel, (bins, weights) in enumerate(bands):
            # A product of matrices would have other last bits on another number of threads, and
            # most of its factors would be zero.
            energies[block, mel] = (power[:, bins] * weights).sum(axis=1)
    logarithms = np.log10(np.maximum(energies, 1e-10))
    return (np.maximum(logarithms, logarithms.max() - 8) + 4) / 4


@cache
def _weights(
    mels: int, sample_rate: int, window: int
) -> tuple[Float[np.ndarray, " window"], list[tuple[slice, Float[np.ndarray, " bin"]]]]:
    """The window, and for each mel the bins that its filter covers, with their weights."""
    # Periodic: the window of one more sample, without its last.
    hann = np.hanning(window + 1)[:-1].astype(np.float32)
    bands = []
    for weights in mel_filters(mels, sample_rate, window).astype(np.float32):
        covered = np.flatnonzero(weights)
        # A filter between two bins covers none.
        bins = slice(covered[0], covered[-1] + 1) if len(covered) else slice(0)
        bands.append((bins, weights[bins]))
    return hann, bands
