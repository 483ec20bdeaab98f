"""``train``: compose a config, or take that of the run to go on with, and hand it over."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from transformer.cli.compose import compose_config, config_folder
from transformer.cli.exit import exit_code_of
from transformer.cli.resume import named_checkpoint, resumed_config, run_folder_of
from transformer.errors import InputError
from transformer.training.rendezvous import external_place

RANK = (sys.executable, "-m", "transformer.cli.rank")
"""What starts one more rank of a run on this machine; the run directory follows."""


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    return exit_code_of(lambda: _launch(list(arguments)))


def _launch(arguments: list[str]) -> None:
    place = external_place()
    rank = 0 if place is None else place.rank
    checkpoint = named_checkpoint(arguments)
    if checkpoint is not None:
        train_as_rank(rank, resumed_config(checkpoint, arguments), run_folder_of(checkpoint))
        return
    # Hydra's flags (--multirun, --help, --cfg) start with a dash and are its own to check.
    if not any(argument.startswith("-") for argument in arguments):
        config = compose_config("train", arguments)
    elif place is not None:
        raise InputError("a sweep starts its own processes; call it without torchrun or srun")
    if place is not None and rank > 0:
        # Where the time is part of the name, each would make a run directory of its own.
        train_as_rank(rank, config, Path(place.agreed("")))
        return
    sys.argv[1:] = arguments
    hydra.main(str(config_folder()), "train", version_base="1.3")(_task)()


def _task(config: DictConfig) -> None:
    """One job; Hydra must not see our exceptions, which it would print with a traceback."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    code = exit_code_of(lambda: _first_rank(config, folder))
    if code:
        sys.exit(code)


def _first_rank(config: DictConfig, folder: Path) -> None:
    place = external_place()
    if place is not None:
        place.agreed(str(folder))
    train_as_rank(0, config, folder)


def train_as_rank(rank: int, config: DictConfig, folder: Path) -> None:
    """Train as one of the processes of a run; rank 0 alone writes to its directory.

    Raises:
        InputError: The config or the data is wrong.
        Interrupted: The user pressed Ctrl-C; a checkpoint has been written.
        AnotherRankFailed: Which has said why.
    """
    # Torch and Lightning take seconds to import: not before the call is known to be right.
    from transformer.training.config import run_config
    from transformer.training.run import train

    OmegaConf.resolve(config)
    folder.mkdir(parents=True, exist_ok=True)
    _log_to(folder / "train.log", rank)
    typed = run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]
    if rank == 0:
        OmegaConf.save(config, folder / "config.yaml")
    logging.getLogger(__name__).info("run directory %s", folder)
    train(typed, folder, rank_command=[*RANK, str(folder)])


def _log_to(file: Path, rank: int) -> None:
    """Say everything on stderr and in the run directory; of other ranks only what is wrong."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if rank == 0:
        handlers.append(logging.FileHandler(file))
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING,
        format="%(asctime)s %(message)s" if rank == 0 else f"%(asctime)s rank {rank}: %(message)s",
        datefmt="%H:%M:%S",
        handlers=handlers,
        force=True,
    )
    logging.captureWarnings(True)
