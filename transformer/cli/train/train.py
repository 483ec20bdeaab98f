"""``train``: compose a config, or take that of the run to go on with, and hand it over."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import (
    check_known_choices,
    compose_config,
    config_folder,
    flags_and_overrides,
    refusal,
    with_recipe,
)
from transformer.cli.config.hydra_errors import override_key
from transformer.cli.exit import run_to_exit_code
from transformer.cli.train.resume import AUTO, TRUST, chosen_run, named_checkpoint, resumed_config
from transformer.cli.train.run_log import LOG, log_to
from transformer.cli.train.sweep import save_trial, summarised
from transformer.cli.train.vocabulary import names_size, with_largest
from transformer.common.errors import InputError, raise_objections
from transformer.common.files import open_unlinked
from transformer.model.checkpoint.locate import run_folder
from transformer.runs.config_file import CONFIG, said, write
from transformer.runs.resume import check_no_other_run
from transformer.training.checkpointing.run_directory import LOCK, has_checkpoint, taken
from transformer.training.distributed.rendezvous import external_place

if TYPE_CHECKING:
    from transformer.training.callbacks.sweep_objective import Objective
    from transformer.training.config import RunConfig

RANK = (sys.executable, "-m", "transformer.cli.rank")
"""What starts one more rank of a run on this machine; the run directory follows."""


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    return run_to_exit_code(lambda: _launch(list(arguments)))


def _launch(arguments: list[str]) -> None:
    index = external_place()
    if index is not None and index.rank > 0:
        # Rank 0 knows what the call means, and its directory may have the time in its name.
        folder, values, exact = json.loads(index.agreed(""))
        train_as_rank(index.rank, OmegaConf.create(values), Path(folder), exact=exact)
        return
    checkpoint = named_checkpoint(arguments)
    if checkpoint is not None:
        train_as_rank(0, resumed_config(checkpoint, arguments), run_folder(checkpoint))
        return
    if any(argument.startswith(f"{TRUST}=") for argument in arguments):
        raise InputError(f"{TRUST}= does nothing without checkpoint=RUN; leave it out")
    flags, overrides = flags_and_overrides(arguments)
    if not flags:
        raise_objections(
            f"{override} is for a sweep; add --multirun"
            for override in overrides
            if override_key(override) in ("sweep", "cluster")
        )
        compose_config("train", overrides)
    elif index is not None:
        raise InputError("a sweep starts its own processes; call it without torchrun or srun")
    else:
        check_known_choices("train", overrides)
    sys.argv[1:] = [*flags, *with_recipe(overrides)]
    # Otherwise Hydra would print what is raised, and how it came to it.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    began: list[DictConfig] = []

    @wraps(_task)
    def task(config: DictConfig) -> float | None:
        began.append(config)
        return _task(config)

    try:
        with summarised():
            hydra.main(str(config_folder()), "train", version_base="1.3")(task)()
    except HydraException as error:
        raise refusal("train", overrides, error) from error
    except OSError as error:
        if began:
            raise
        raise InputError(
            f"the run directory {error.filename} cannot be made: {error.strerror}; give another "
            "with hydra.run.dir=FOLDER"
        ) from error


def _task(config: DictConfig) -> float | None:
    """One job. Hydra must not see the exceptions of one that is not of a sweep."""
    job = HydraConfig.get()
    folder = Path(job.runtime.output_dir)
    if job.mode == RunMode.MULTIRUN:
        return _trial(config, folder, job)
    exact = names_size(job.overrides.task)
    code = run_to_exit_code(
        lambda: train_as_rank(0, config, _begun(config, folder, job), exact=exact)
    )
    if code:
        sys.exit(code)
    return None


def _begun(config: DictConfig, folder: Path, job: HydraConf) -> Path:
    """The run directory; ``checkpoint=auto`` may mean another, and becomes a path or none."""
    if config.checkpoint == AUTO:
        folder = chosen_run(config, folder, job)
        config.checkpoint = str(folder) if has_checkpoint(folder) else None
    return folder


def _trial(config: DictConfig, folder: Path, job: HydraConf) -> float:
    """One job of a sweep: hands back its best validation.

    Raises:
        InputError: Config or data is wrong, or the trial ends before its first validation.
    """
    from transformer.model.checkpoint.checkpoint import find_last
    from transformer.tasks.registry import TASKS
    from transformer.training.callbacks.sweep_objective import Objective, check_direction
    from transformer.training.config import run_config

    folder = _begun(config, folder, job)
    typed = run_config(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    objective = Objective(typed.objective or TASKS[typed.task].criterion.metric)
    check_direction(objective.metric, job.sweeper.get("direction"))
    train_as_rank(0, config, folder, objective, exact=names_size(job.overrides.task))
    if objective.best is None and has_checkpoint(folder):
        objective.recall(find_last(folder)[1])
    if objective.best is None:
        raise InputError("the trial ends before its first validation; let it train longer")
    save_trial(folder, objective, job.overrides.task)
    return objective.best


def train_as_rank(
    rank: int,
    config: DictConfig,
    folder: Path,
    objective: "Objective | None" = None,
    *,
    exact: bool = False,
) -> None:
    """Train as one of the processes of a run; rank 0 alone writes to its directory.

    A run that is refused before training begins leaves none behind.

    Args:
        rank: Which.
        config: The run.
        folder: Its directory.
        objective: What to watch, in a sweep.
        exact: Refuse a vocabulary that is too large for the text; else the largest is learnt.

    Raises:
        InputError: The config or the data is wrong.
        Interrupted: A signal has stopped it; a checkpoint has been written.
        AnotherRankFailed: Which has said why.
    """
    # Torch and Lightning take seconds to import: not before the call is known to be right.
    from transformer.training.config import run_config

    OmegaConf.resolve(config)
    with ExitStack() as first:
        if rank == 0:
            first.enter_context(_begun_in(folder))
        log_to(folder / LOG, rank, resumed=config.checkpoint is not None)
        typed = run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]
        if rank == 0:
            if typed.objective and objective is None and typed.checkpoint is None:
                raise InputError(f"objective={typed.objective} is for a sweep; add --multirun")
            if typed.checkpoint is None:
                check_no_other_run(folder)
            first.enter_context(said(config, folder))
            _tell_others(config, folder, exact)
        logging.getLogger(__name__).info("run directory %s", folder)
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
    with taken(folder):
        new = {path.name for path in folder.iterdir()} <= {LOG, LOCK}
        try:
            yield
        except InputError:
            if new and {path.name for path in folder.iterdir()} <= files:
                shutil.rmtree(folder)
            raise


def _run(config: "RunConfig", folder: Path, objective: "Objective | None") -> None:
    from transformer.runs.train import train

    if config.resume_check is None:
        train(config, folder, rank_command=[*RANK, str(folder)], objective=objective)
        return
    from transformer.runs.resume_check import check_resume

    print(check_resume(config.resolved, folder, config.resume_check))


def _tell_others(config: DictConfig, folder: Path, exact: bool) -> None:
    """Say to the ranks that torchrun or SLURM has started what the run is, and where."""
    if (index := external_place()) is not None:
        values = OmegaConf.to_container(config)
        index.agreed(json.dumps([str(folder.absolute()), values, exact]))
