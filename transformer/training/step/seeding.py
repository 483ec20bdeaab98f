"""Random numbers of training: a function of the micro-batch, so that no state is saved."""

import random

import numpy as np
import torch


def seed_for(seed: int, *path: int) -> None:
    """Seed the generators of torch (every device), NumPy and Python for a micro-batch.

    The path is its number in the run, and the indices of its half, quarter, … So no random state is
    saved: a resumed run, a run on more ranks and a repeated update draw the same dropout masks.
    """
    word = int(np.random.SeedSequence([seed, len(path), *path]).generate_state(1, np.uint64)[0])
    torch.manual_seed(word)
    np.random.seed(word % 2**32)
    random.seed(word)
