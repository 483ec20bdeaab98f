"""Random numbers of a micro-batch are a function of the seed and of its number.

So no random state is saved: a resumed run, a run on more ranks and a repeated update draw the same
dropout masks and skip the same layers. It does not know what is drawn.
"""

import random

import numpy as np
import torch


def seed_for(seed: int, *path: int) -> None:
    """Seed the generators of torch (every device), NumPy and Python.

    The path is the number of the micro-batch in the run, and the indices of its half, quarter, …
    """
    word = int(np.random.SeedSequence([seed, len(path), *path]).generate_state(1, np.uint64)[0])
    torch.manual_seed(word)
    np.random.seed(word % 2**32)
    random.seed(word)
