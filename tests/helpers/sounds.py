"""Sounds made by a formula, and files of them."""

from pathlib import Path

import numpy as np
import soundfile
from jaxtyping import Float

RATE = 16_000


def sound(seed: int, seconds: float) -> Float[np.ndarray, " sample"]:
    """A few tones, whose pitch and loudness change, and noise; from -1 to 1."""
    random = np.random.default_rng(seed)
    time = np.arange(round(seconds * RATE)) / RATE
    tones = np.zeros_like(time)
    for _ in range(4):
        pitch = random.uniform(100, 4000) * (1 + 0.2 * np.sin(random.uniform(1, 20) * time))
        tones += np.sin(2 * np.pi * pitch * time) * np.abs(np.sin(random.uniform(1, 30) * time))
    return (0.15 * tones + random.uniform(0, 0.05) * random.standard_normal(len(time))).astype(
        np.float32
    )


def sound_files(folder: Path, count: int, seconds: float = 1.0) -> list[str]:
    """Write WAV files of 16 bits, of at most these seconds, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    lengths = np.random.default_rng(0).uniform(seconds / 4, seconds, count)
    names = []
    for seed, length in enumerate(lengths):
        file = folder / f"{seed}.wav"
        soundfile.write(file, sound(seed, float(length)), RATE, subtype="PCM_16")
        names.append(str(file))
    return names
