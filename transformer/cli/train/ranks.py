"""The processes of a run: this one alone, those that it starts, or one of torchrun or SLURM."""

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
from transformer.common.own_code import import_code
from transformer.common.processes import end_with_parent
from transformer.data.corpora.trust import named_classes
from transformer.report.page import REPORT
from transformer.runs.config_file import CONFIG, saved_config, write
from transformer.runs.record import RECORD
from transformer.runs.resume import check_no_other_run
from transformer.tasks.registry import is_translation
from transformer.training.checkpointing.run_directory import LOCK, locked
from transformer.training.distributed.launcher import RUN, count_devices, run_ranks
from transformer.training.distributed.rendezvous import Rank, external_rank, reporting_once

if TYPE_CHECKING:
    from transformer.training.config import RunConfig


def train_run(
    config: DictConfig, folder: Path, objective: str | None = None, *, exact: bool = False
) -> None:
    """Train in this process or, for several devices without torchrun or SLURM, in new ones."""
    count = count_devices(config.trainer) if config.trainer.num_nodes == 1 else 1
    # torchrun with one process makes no rank of it, but decides that there is one.
    if count == 1 or external_rank() is not None or "TORCHELASTIC_RUN_ID" in os.environ:
        train_as_rank(0, config, folder, objective, exact=exact)
    else:
        run_ranks(count, _call_json(config, folder, objective, exact))


def train_assigned(process: Rank) -> None:
    """Train as a rank that gets the call from rank 0, or from the process that has started it."""
    if RUN in os.environ:
        end_with_parent()
    # The directory may have the time in its name: rank 0 decides it.
    call = os.environ[RUN] if process.rank == 0 else process.agreed("")
    folder, values, objective, exact = json.loads(call)
    # Only rank 0 has all metrics of a validation.
    objective = objective if process.rank == 0 else None
    train_as_rank(process.rank, OmegaConf.create(values), Path(folder), objective, exact=exact)


def _call_json(config: DictConfig, folder: Path, objective: str | None, exact: bool) -> str:
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

    An error before training leaves no directory. A sweep records the metric ``objective``. With
    ``exact``, a vocabulary that is too large for the text is refused; else the largest is learnt.
    """
    # Torch and Lightning take seconds to import: not before the call is known to be right.
    from transformer.cli.threads import sleep_when_crowded
    from transformer.training.config import run_config

    OmegaConf.resolve(config)
    process = external_rank()
    with ExitStack() as stack:
        stack.enter_context(reporting_once(process))
        if rank == 0:
            stack.enter_context(_new_directory(folder))
        log_to(folder / LOG, rank, resumed=config.checkpoint is not None)
        typed = run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]
        import_code(named_classes(typed.resolved))
        if rank == 0:
            if typed.objective and objective is None and typed.checkpoint is None:
                raise InputError(f"objective={typed.objective} is for a sweep; add --multirun")
            if typed.checkpoint is None:
                check_no_other_run(folder, sweeps=objective is not None)
            stack.enter_context(saved_config(config, folder))
            if process is not None:
                process.agreed(_call_json(config, folder, objective, exact))
        logging.getLogger(__name__).info("run directory %s", folder)
        sleep_when_crowded()
        if rank == 0 and is_translation(typed.task) and not typed.data.streaming:
            from transformer.data.quality.examination import log_faults

            log_faults(typed.data)
        if exact or typed.checkpoint is not None:
            _run(typed, folder, objective)
        else:
            with_largest(config, lambda: _run(_sized(config, folder, rank), folder, objective))


def _sized(config: DictConfig, folder: Path, rank: int) -> "RunConfig":
    """The run, written again by rank 0: the size of its vocabulary may have changed."""
    from transformer.training.config import run_config

    if rank == 0:
        write(OmegaConf.to_yaml(config).encode(), folder / CONFIG)
    return run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]


@contextmanager
def _new_directory(folder: Path) -> Iterator[None]:
    """Make a run directory and lock it; remove it again after an error of the input or the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    open_unlinked(folder / LOG, "a").close()
    with locked(folder):
        new = {path.name for path in folder.iterdir()} <= {LOG, LOCK}
        try:
            yield
        except (InputError, OSError):
            written = {LOG, LOCK, CONFIG, RECORD, f"{REPORT}.html", f"{REPORT}.json"}
            if new and {path.name for path in folder.iterdir()} <= written:
                shutil.rmtree(folder)
            raise


def _run(config: "RunConfig", folder: Path, objective: str | None) -> None:
    from transformer.runs.train import train
    from transformer.training.callbacks.sweep_objective import Objective

    better = config.metrics.custom_better
    watched = None if objective is None else Objective(objective, better)
    train(config, folder, objective=watched)
