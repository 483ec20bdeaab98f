"""The processes of a run: this one alone, those that it starts, or one that torchrun or SLURM has.

It does not know how a command is resolved.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from transformer.cli.train.run_log import LOG, log_to
from transformer.cli.train.vocabulary import with_largest
from transformer.common.errors import InputError
from transformer.common.files import open_unlinked
from transformer.common.processes import end_with_parent
from transformer.runs.config_file import CONFIG, saved_config, write
from transformer.runs.resume import check_no_other_run
from transformer.training.checkpointing.run_directory import LOCK, locked
from transformer.training.distributed.launcher import RUN, count_devices, run_ranks
from transformer.training.distributed.rendezvous import Rank, external_rank, reporting_once

if TYPE_CHECKING:
    from transformer.training.config import RunConfig


def train_run(
    config: DictConfig, folder: Path, objective: str | None = None, *, exact: bool = False
) -> None:
    """Train in this process or, where several are asked for and nobody has started them, in those.

    The arguments are those of `train_as_rank`.
    """
    count = count_devices(config.trainer) if config.trainer.num_nodes == 1 else 1
    if count == 1 or external_rank() is not None:
        train_as_rank(0, config, folder, objective, exact=exact)
        return
    run_ranks(count, _told(config, folder, objective, exact))


def train_as_told(index: Rank) -> None:
    """Train as a rank that does not know the call, or need not find out again what it means."""
    if RUN in os.environ:
        end_with_parent()
    # The directory may have the time in its name: rank 0 says which.
    told = os.environ[RUN] if index.rank == 0 else index.agreed("")
    folder, values, objective, exact = json.loads(told)
    # Only rank 0 has all metrics of a validation.
    objective = objective if index.rank == 0 else None
    train_as_rank(index.rank, OmegaConf.create(values), Path(folder), objective, exact=exact)


def _told(config: DictConfig, folder: Path, objective: str | None, exact: bool) -> str:
    """What a rank must know, as JSON."""
    values = OmegaConf.to_container(config, resolve=True)
    return json.dumps([str(folder.absolute()), values, objective, exact])


def train_as_rank(
    rank: int,
    config: DictConfig,
    folder: Path,
    objective: str | None = None,
    *,
    exact: bool = False,
) -> None:
    """Train as one of the processes of a run; rank 0 alone writes to its directory.

    A run that is refused before training begins leaves none behind.

    Args:
        rank: Which.
        config: The run.
        folder: Its directory.
        objective: The metric to watch, in a sweep.
        exact: Refuse a vocabulary that is too large for the text; else the largest is learnt.

    Raises:
        InputError: The config or the data is wrong.
        Interrupted: A signal has stopped it; a checkpoint has been written.
        AnotherRankFailed: It has reported why.
    """
    # Torch and Lightning take seconds to import: not before the call is known to be right.
    from transformer.data.quality.preflight import log_faults
    from transformer.training.config import run_config

    OmegaConf.resolve(config)
    index = external_rank()
    with ExitStack() as first:
        first.enter_context(reporting_once(index))
        if rank == 0:
            first.enter_context(_begun_in(folder))
        log_to(folder / LOG, rank, resumed=config.checkpoint is not None)
        typed = run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]
        if rank == 0:
            if typed.objective and objective is None and typed.checkpoint is None:
                raise InputError(f"objective={typed.objective} is for a sweep; add --multirun")
            if typed.checkpoint is None:
                check_no_other_run(folder)
            first.enter_context(saved_config(config, folder))
            if index is not None:
                index.agreed(_told(config, folder, objective, exact))
        logging.getLogger(__name__).info("run directory %s", folder)
        if rank == 0 and typed.task == "translation":
            log_faults(typed.data)
        if exact or typed.checkpoint is not None:
            _run(typed, folder, objective)
        else:
            with_largest(config, lambda: _run(_sized(config, folder, rank), folder, objective))


def _sized(config: DictConfig, folder: Path, rank: int) -> "RunConfig":
    """The run, written down anew by rank 0: the size of its vocabulary may be another now."""
    from transformer.training.config import run_config

    if rank == 0:
        write(OmegaConf.to_yaml(config).encode(), folder / CONFIG)
    return run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]


@contextmanager
def _begun_in(folder: Path) -> Iterator[None]:
    """Make a run directory and keep others out; take it away if the run is refused at once.

    Raises:
        InputError: It cannot be written to, or another process trains there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        open_unlinked(folder / LOG, "a").close()
    except OSError as error:
        raise InputError(
            f"the run directory {folder} cannot be written to: {error.strerror}; give another "
            "with hydra.run.dir=FOLDER"
        ) from error
    files = {LOG, CONFIG, LOCK}
    with locked(folder):
        new = {path.name for path in folder.iterdir()} <= {LOG, LOCK}
        try:
            yield
        except InputError:
            if new and {path.name for path in folder.iterdir()} <= files:
                shutil.rmtree(folder)
            raise


def _run(config: "RunConfig", folder: Path, objective: str | None) -> None:
    from transformer.runs.train import train
    from transformer.training.callbacks.sweep_objective import Objective

    if config.resume_check is None:
        train(config, folder, objective=None if objective is None else Objective(objective))
        return
    from transformer.runs.resume_check import check_resume

    print(check_resume(config.resolved, folder, config.resume_check))
