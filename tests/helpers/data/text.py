"""Made-up parallel text."""

import random
from collections.abc import Callable
from pathlib import Path

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "omega",
]


def write_parallel(
    folder: Path, name: str, count: int, seed: int, turn: Callable[[list[str]], list[str]]
) -> list[str]:
    """Write ``name.src`` and ``name.tgt``, a random phrase a line and what ``turn`` makes of it.

    Returns:
        Both paths, as ``data.train`` takes them.
    """
    random_ = random.Random(seed)
    phrases = [random_.choices(WORDS, k=random_.randint(2, 7)) for _ in range(count)]
    for suffix, lines in (("src", phrases), ("tgt", [turn(phrase) for phrase in phrases])):
        text = "".join(" ".join(line) + "\n" for line in lines)
        (folder / f"{name}.{suffix}").write_text(text)
    return [str(folder / f"{name}.{suffix}") for suffix in ("src", "tgt")]
