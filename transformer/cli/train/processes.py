"""The processes of a run: this one alone, those that it starts, or one of torchrun or SLURM."""

import json
import os
from pathlib import Path

from transformer.checkpoint.trust import named_classes
from transformer.cli.train.run_log import log_to_stderr
from transformer.common.errors import InputError
from transformer.common.own_code import import_code
from transformer.common.processes import end_with_parent
from transformer.runs.directory import LOG
from transformer.runs.processes import RankCall, count_processes, train_in_processes
from transformer.settings.run import RunConfig
from transformer.training.distributed.launcher import RUN
from transformer.training.distributed.ranks import (
    Rank,
    end_rank,
    external_rank,
    reporting_once,
)


def train_run(
    config: RunConfig,
    folder: Path,
    objective: str | None = None,
    *,
    fit_vocabulary: bool = False,
) -> None:
    """Train in this process or, for several devices without torchrun or SLURM, in new ones."""
    count = count_processes(config.trainer)
    if count > 1:
        train_in_processes(count, config, folder, objective, fit_vocabulary=fit_vocabulary)
    else:
        train_as_rank(0, RankCall(config, folder, objective, fit_vocabulary))


def train_assigned(process: Rank) -> None:
    """Train as a rank that gets the call from rank 0, or from the process that has started it.

    Without an error, the process ends here.
    """
    if RUN in os.environ:
        end_with_parent()
    # The directory may have the time in its name: rank 0 decides it.
    call = RankCall.from_json(os.environ[RUN] if process.rank == 0 else process.agreed(""))
    # Only rank 0 has all metrics of a validation.
    train_as_rank(process.rank, call if process.rank == 0 else call._replace(objective=None))
    end_rank()


def train_as_rank(rank: int, call: RankCall) -> None:
    """Train as one of the processes of a run; rank 0 alone writes to its directory.

    A sweep records the metric ``call.objective``. With ``call.fit_vocabulary``, the largest
    vocabulary is learned where the text allows no larger one; else it is refused.
    """
    # Torch and Lightning take seconds to import: not before the call is known to be right.
    from transformer.cli.threads import sleep_when_crowded

    config, folder, objective, fit_vocabulary, metrics = call
    process = external_rank()
    with reporting_once(process):
        log_to_stderr(rank, folder / LOG, resumed=config.checkpoint is not None)
        import_code(named_classes(config))
        if rank == 0:
            if config.objective and objective is None and config.checkpoint is None:
                raise InputError(f"objective={config.objective} is for a sweep; add --multirun")
            if process is not None:
                process.agreed(call.to_json())
        from transformer.runs.train import train
        from transformer.training.callbacks.best_score import Objective
        from transformer.training.cpu_allocator import (
            keep_freed_memory,
            keep_products,
        )

        sleep_when_crowded()
        keep_products()
        if config.keep_memory:
            keep_freed_memory()
        better = config.metrics.custom_better
        values = train(
            config,
            folder,
            objective=None if objective is None else Objective(objective, better),
            fit_vocabulary=fit_vocabulary and config.checkpoint is None,
        )
        if rank == 0 and metrics is not None:
            metrics.write_text(json.dumps(values), encoding="utf-8")
