"""What is drawn at random for a micro-batch is a function of the seed and its number.

So there is no random state to save: a resumed run, one on more ranks, and one that repeats an
update draw the same dropout masks and leave out the same layers. It does not know what is drawn.
"""

import random

import numpy as np
import torch


def seed_for(seed: int, *path: int) -> None:
    """Seed the generators of torch (every device), NumPy and Python.

    Args:
        seed: Of the run.
        path: The number of the micro-batch in the row of batches, and where it has been split,
            which part it is.
    """
    word = int(np.random.SeedSequence([seed, len(path), *path]).generate_state(1, np.uint64)[0])
    torch.manual_seed(word)
    np.random.seed(word % 2**32)
    random.seed(word)
