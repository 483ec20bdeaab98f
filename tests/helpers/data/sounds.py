"""Small sounds whose words are tones, and their text."""

import random
import wave
from pathlib import Path

import numpy as np

RATE = 16_000
TONES = {"one": 300, "two": 600, "three": 1200, "four": 2400}
"""Words, and the frequency that stands for each, in Hz."""


def write_tones(path: Path, words: list[str]) -> None:
    """A WAV file with a tone of 60 ms for each word."""
    time = np.arange(int(0.06 * RATE)) / RATE
    tones = [np.sin(2 * np.pi * TONES[word] * time) for word in words]
    samples = (12_000 * np.concatenate(tones)).astype("<i2")
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())


def write_sounds(folder: Path, **counts: int) -> list[str]:
    """Write sounds and a TSV for each split; returns the overrides of a run that reads them."""
    overrides = ["data=files", "data.source_kind=speech", "data.source=sound", "data.target=en"]
    for split, count in counts.items():
        dice = random.Random(split)
        lines = []
        for number in range(count):
            words = dice.choices(list(TONES), k=dice.randint(1, 4))
            name = f"{split}/{number}.wav"
            write_tones(folder / name, words)
            lines.append(f"{name}\t{' '.join(words)}\n")
        (folder / f"{split}.tsv").write_text("".join(lines))
        overrides.append(f"data.{split}={folder}/{split}.tsv")
    return [*overrides, "tokenizer=words", "data.speech.mels=16", "data.speech.time_masks=1"]
