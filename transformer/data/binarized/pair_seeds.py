"""Seeds of pairs: what is drawn for a pair is the same on any worker or rank."""

import numpy as np
from jaxtyping import Int

SOURCE_SEGMENTATION, TARGET_SEGMENTATION, DISTURBANCE, NEXT_PAIR, NOISE = range(5)


def pair_seeds(
    seed: int, epoch: int, pairs: Int[np.ndarray, " pair"], purpose: int
) -> Int[np.ndarray, " pair"]:
    """Mix the four numbers into 32 bits a pair, with the finalizer of SplitMix64."""
    mixed = np.full(len(pairs), seed, dtype=np.uint64)
    for number in (np.uint64(epoch), pairs.astype(np.uint64), np.uint64(purpose)):
        mixed = (mixed ^ number) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(32)).astype(np.int64)
