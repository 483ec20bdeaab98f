"""The processes of a run: this one alone, those that it starts, or one of torchrun or SLURM."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.cli.train.run_log import log_to_stderr
from transformer.common.errors import InputError
from transformer.common.own_code import import_code
from transformer.common.processes import end_with_parent
from transformer.data.corpora.trust import named_classes
from transformer.runs.directory import LOG
from transformer.settings.run import RunConfig, plain_values, run_config
from transformer.training.distributed.launcher import RUN, count_devices, run_ranks
from transformer.training.distributed.rendezvous import Rank, external_rank, reporting_once

if TYPE_CHECKING:
    from transformer.training.checkpointing.training_state import Resumable


def train_run(
    config: RunConfig,
    folder: Path,
    objective: str | None = None,
    *,
    exact: bool = False,
    resume: "Resumable | None" = None,
) -> None:
    """Train in this process or, for several devices without torchrun or SLURM, in new ones."""
    count = count_devices(config.trainer) if config.trainer.num_nodes == 1 else 1
    # torchrun with one process makes no rank of it, but decides that there is one.
    if count == 1 or external_rank() is not None or "TORCHELASTIC_RUN_ID" in os.environ:
        train_as_rank(0, config, folder, objective, exact=exact, resume=resume)
        return
    if resume is not None:
        resume.take()  # each process reads it
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
    train_as_rank(process.rank, run_config(values), Path(folder), objective, exact=exact)


def _call_json(config: RunConfig, folder: Path, objective: str | None, exact: bool) -> str:
    return json.dumps([str(folder.absolute()), plain_values(config), objective, exact])


def train_as_rank(
    rank: int,
    config: RunConfig,
    folder: Path,
    objective: str | None = None,
    *,
    exact: bool = False,
    resume: "Resumable | None" = None,
) -> None:
    """Train as one of the processes of a run; rank 0 alone writes to its directory.

    A sweep records the metric ``objective``. With ``exact``, a vocabulary that is too large for the
    text is refused; else the largest is learned. ``resume`` is the checkpoint, if it has been read.
    """
    # Torch and Lightning take seconds to import: not before the call is known to be right.
    from transformer.cli.threads import sleep_when_crowded

    process = external_rank()
    with reporting_once(process):
        log_to_stderr(rank, folder / LOG, resumed=config.checkpoint is not None)
        import_code(named_classes(config))
        if rank == 0:
            if config.objective and objective is None and config.checkpoint is None:
                raise InputError(f"objective={config.objective} is for a sweep; add --multirun")
            if process is not None:
                process.agreed(_call_json(config, folder, objective, exact))
        from transformer.runs.train import train
        from transformer.training.callbacks.sweep_objective import Objective
        from transformer.training.optimization.cpu_allocator import (
            keep_freed_memory,
            keep_products,
        )

        sleep_when_crowded()
        keep_products()
        if config.keep_memory:
            keep_freed_memory()
        better = config.metrics.custom_better
        train(
            config,
            folder,
            objective=None if objective is None else Objective(objective, better),
            resume=resume,
            fit_vocabulary=not exact and config.checkpoint is None,
        )
