"""``train``: compose a config, or take that of the run to go on with, and hand it over."""

import os
import sys
from collections.abc import Sequence
from functools import wraps
from pathlib import Path

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
from transformer.cli.train.ranks import train_as_told, train_run
from transformer.cli.train.resume import AUTO, TRUST, chosen_run, named_checkpoint, resumed_config
from transformer.cli.train.sweep import save_trial, summarised
from transformer.cli.train.vocabulary import names_size
from transformer.common.errors import InputError, raise_objections
from transformer.model.checkpoint.locate import run_folder
from transformer.training.checkpointing.run_directory import has_checkpoint
from transformer.training.distributed.launcher import RUN
from transformer.training.distributed.rendezvous import external_place


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    code = run_to_exit_code(lambda: _launch(list(arguments)))
    torch = sys.modules.get("torch")
    if code and torch and torch.distributed.is_initialized():
        # A rank that has failed does not wait for the others, which Python may do when it exits.
        os._exit(code)
    return code


def _launch(arguments: list[str]) -> None:
    index = external_place()
    if index is not None and (index.rank > 0 or RUN in os.environ):
        train_as_told(index)
        return
    checkpoint = named_checkpoint(arguments)
    if checkpoint is not None:
        train_run(resumed_config(checkpoint, arguments), run_folder(checkpoint))
        return
    if any(argument.startswith(f"{TRUST}=") for argument in arguments):
        raise InputError(f"{TRUST}= does nothing without checkpoint=RUN; leave it out")
    flags, overrides = flags_and_overrides(arguments)
    if not flags:
        raise_objections(
            f"{override} is for a sweep; add --multirun"
            for override in overrides
            if override_key(override) == "launch"
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
    code = run_to_exit_code(lambda: train_run(config, _begun(config, folder, job), exact=exact))
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
    train_run(config, folder, objective.metric, exact=names_size(job.overrides.task))
    if has_checkpoint(folder):
        objective.recall(find_last(folder)[1])
    if objective.best is None:
        raise InputError("the trial ends before its first validation; let it train longer")
    save_trial(folder, objective, job.overrides.task)
    return objective.best
