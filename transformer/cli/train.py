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

from transformer.cli.compose import (
    compose_config,
    config_folder,
    flags_and_overrides,
    refusal,
    refuse_unknown_choices,
    with_recipe,
)
from transformer.cli.config_file import CONFIG, said, write
from transformer.cli.exit import exit_code_of
from transformer.cli.explain import key_of
from transformer.cli.resume import (
    AUTO,
    TRUST,
    chosen_run,
    named_checkpoint,
    resumed_config,
    run_folder_of,
)
from transformer.cli.run_log import LOG, log_to
from transformer.cli.sweep import save_trial, summarised
from transformer.cli.vocabulary import names_size, with_largest
from transformer.errors import InputError, refuse
from transformer.files import open_unlinked
from transformer.processes import end_with_parent
from transformer.training.launcher import RUN, count_devices, run_ranks
from transformer.training.rendezvous import Place, external_place, reporting_once
from transformer.training.run_folder import LOCK, has_checkpoint, refuse_another_run, taken

if TYPE_CHECKING:
    from transformer.training.config import RunConfig
    from transformer.training.objective import Objective


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    code = exit_code_of(lambda: _launch(list(arguments)))
    torch = sys.modules.get("torch")
    if code and torch and torch.distributed.is_initialized():
        # A rank that has failed does not wait for the others, which Python may do when it exits.
        os._exit(code)
    return code


def _launch(arguments: list[str]) -> None:
    place = external_place()
    if place is not None and (place.rank > 0 or RUN in os.environ):
        _train_as_told(place)
        return
    checkpoint = named_checkpoint(arguments)
    if checkpoint is not None:
        _train(resumed_config(checkpoint, arguments), run_folder_of(checkpoint))
        return
    if any(argument.startswith(f"{TRUST}=") for argument in arguments):
        raise InputError(f"{TRUST}= does nothing without checkpoint=RUN; leave it out")
    flags, overrides = flags_and_overrides(arguments)
    if not flags:
        refuse(
            f"{override} is for a sweep; add --multirun"
            for override in overrides
            if key_of(override) in ("sweep", "cluster")
        )
        compose_config("train", overrides)
    elif place is not None:
        raise InputError("a sweep starts its own processes; call it without torchrun or srun")
    else:
        refuse_unknown_choices("train", overrides)
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
    code = exit_code_of(lambda: _train(config, _begun(config, folder, job), exact=exact))
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
    from transformer.model.checkpoint import find_last
    from transformer.training.config import run_config
    from transformer.training.objective import Objective, refuse_wrong_direction
    from transformer.training.tasks import TASKS

    folder = _begun(config, folder, job)
    typed = run_config(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    objective = Objective(typed.objective or TASKS[typed.task].criterion.metric)
    refuse_wrong_direction(objective.metric, job.sweeper.get("direction"))
    _train(config, folder, objective, exact=names_size(job.overrides.task))
    if objective.best is None and has_checkpoint(folder):
        objective.recall(find_last(folder)[1])
    if objective.best is None:
        raise InputError("the trial ends before its first validation; let it train longer")
    save_trial(folder, objective, job.overrides.task)
    return objective.best


def _train(
    config: DictConfig, folder: Path, objective: "Objective | None" = None, *, exact: bool = False
) -> None:
    """Train in this process or, where several are asked for and nobody has started them, in those.

    The arguments are those of `train_as_rank`.
    """
    count = count_devices(config.trainer) if config.trainer.num_nodes == 1 else 1
    if count == 1 or external_place() is not None:
        train_as_rank(0, config, folder, objective, exact=exact)
        return
    run_ranks(count, _told(config, folder, objective, exact))


def _train_as_told(place: Place) -> None:
    """Train as a rank that does not know the call, or need not find out again what it means."""
    if RUN in os.environ:
        end_with_parent()
    # The directory may have the time in its name: rank 0 says which.
    told = os.environ[RUN] if place.rank == 0 else place.agreed("")
    folder, values, metric, exact = json.loads(told)
    objective = None
    if metric is not None and place.rank == 0:
        from transformer.training.objective import Objective

        objective = Objective(metric)
    train_as_rank(place.rank, OmegaConf.create(values), Path(folder), objective, exact=exact)


def _told(config: DictConfig, folder: Path, objective: "Objective | None", exact: bool) -> str:
    """What a rank must know, as JSON."""
    values = OmegaConf.to_container(config, resolve=True)
    metric = None if objective is None else objective.metric
    return json.dumps([str(folder.absolute()), values, metric, exact])


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
        AnotherRankFailed: It has reported why.
    """
    # Torch and Lightning take seconds to import: not before the call is known to be right.
    from transformer.training.config import run_config

    OmegaConf.resolve(config)
    place = external_place()
    with ExitStack() as first:
        first.enter_context(reporting_once(place))
        if rank == 0:
            first.enter_context(_begun_in(folder))
        log_to(folder / LOG, rank, resumed=config.checkpoint is not None)
        typed = run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]
        if rank == 0:
            if typed.objective and objective is None and typed.checkpoint is None:
                raise InputError(f"objective={typed.objective} is for a sweep; add --multirun")
            if typed.checkpoint is None:
                refuse_another_run(folder)
            first.enter_context(said(config, folder))
            if place is not None:
                place.agreed(_told(config, folder, objective, exact))
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
    from transformer.training.run import train

    if config.resume_check is None:
        train(config, folder, objective=objective)
        return
    from transformer.training.resume_check import check_resume

    print(check_resume(config.resolved, folder, config.resume_check))
