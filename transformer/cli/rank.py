"""One more rank of a run on this machine: ``python -m transformer.cli.rank FOLDER``.

Rank 0 starts it (training/launcher.py), and has written the config of the run into its folder.
"""

import os
import sys
import threading
import time
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from transformer.cli.exit import run_to_exit_code
from transformer.cli.train.train import CONFIG, train_as_rank


def train_rank(folder: Path) -> int:
    """Train; returns the exit code."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    config = OmegaConf.load(folder / CONFIG)
    assert isinstance(config, DictConfig)
    rank = int(os.environ["LOCAL_RANK"])
    # Rank 0 has learnt the vocabulary, and written its size down, before it starts another.
    return run_to_exit_code(lambda: train_as_rank(rank, config, folder, exact=True))


def _end_with(parent: int) -> None:
    """End when rank 0 has been killed: some collectives would wait for it for ever."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(train_rank(Path(sys.argv[1])))
