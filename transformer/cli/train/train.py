"""``train``: compose a config, or take that of the run to resume, and train."""

import logging
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from transformer.checkpoint.run_directory import has_checkpoint, run_folder
from transformer.checkpoint.trust import named_classes
from transformer.cli.config import compose
from transformer.cli.config.arguments import (
    check_overrides,
    config_folder,
    flags_and_overrides,
    names_vocabulary_size,
    search_path,
)
from transformer.cli.train.processes import train_assigned, train_run
from transformer.cli.train.resume import AUTO, TRUST, config_of_arguments, named_checkpoint
from transformer.cli.train.sweep import directory_override, recorded, show_jobs, sweep_directory
from transformer.common.errors import InputError
from transformer.common.files import HUB, given_path
from transformer.common.own_code import import_code
from transformer.common.processes import COMMAND, command_line
from transformer.common.schema import override_key
from transformer.runs.resume import resumed_or_new
from transformer.settings.run import RunConfig
from transformer.training.distributed.launcher import RUN
from transformer.training.distributed.ranks import external_rank

if TYPE_CHECKING:
    from transformer.training.callbacks.best_score import Objective


def run(arguments: Sequence[str]) -> None:
    """Train, as one of the processes of a run or as the one that starts them."""
    process = external_rank()
    if process is not None and (process.rank > 0 or RUN in os.environ):
        train_assigned(process)
        return
    checkpoint = named_checkpoint(arguments)
    if checkpoint is not None:
        train_run(config_of_arguments(checkpoint, arguments), run_folder(checkpoint))
        return
    flags, overrides = flags_and_overrides(arguments)
    if flags:
        if process is not None:
            raise InputError("a sweep starts its own processes; call it without torchrun or srun")
        _hydra(flags, overrides)
        return
    trust = [one for one in overrides if override_key(one) == TRUST]
    if not {f"{TRUST}=true", f"{TRUST}=false"}.issuperset(trust):
        raise InputError(f"{' '.join(trust)} must be {TRUST}=true or {TRUST}=false")
    if launch := [one for one in overrides if override_key(one) == "launch"]:
        raise InputError(f"{launch[0]} is for a sweep; add --multirun")
    config = compose.compose_config("train", [one for one in overrides if one not in trust])
    folder = Path(HydraConfig.get().run.dir).absolute()
    given = {override_key(one).lstrip("+") for one in overrides}
    _fetch_model(config)
    if config.finetune_from is not None:
        _take_model(config, given, trusted=f"{TRUST}=true" in trust)
    elif trust:
        raise InputError(f"{trust[0]} is for a checkpoint; add finetune_from= or checkpoint=")
    elif "experiment=finetune" in overrides:
        raise InputError("experiment=finetune adapts a trained model; add finetune_from=RUN")
    named = "hydra.run.dir" in given
    fit = not names_vocabulary_size(overrides)
    settings, folder = _resolve_auto(config, folder, named=named, fit_vocabulary=fit)
    train_run(settings, folder, fit_vocabulary=fit)


def _take_model(config: DictConfig, given: Collection[str], *, trusted: bool) -> None:
    """Set what is not ``given`` of model and vocabulary to the values of the checkpoint."""
    from transformer.runs.finetuning import settings_of_initial

    path = given_path(str(config.finetune_from))
    if config.checkpoint == AUTO and not path.exists():
        return  # A run goes on without what it began with.
    for key, value in settings_of_initial(path, config.task, given, trusted=trusted).items():
        group, _, _ = key.partition(".")
        if key in given or (group != "data" and group in given):
            continue
        if "${" in str(value):
            raise InputError(f"finetune_from={path}: {key} holds ${{…}}, which would be replaced")
        if key != "data.features" or config.data.features is None:
            OmegaConf.update(config, key, list(value) if isinstance(value, tuple) else value)


def _hydra(flags: Sequence[str], overrides: Sequence[str]) -> None:
    """Let Hydra run the sweep of --multirun, or show what its other flags ask for."""
    overrides = compose.as_overrides("train", overrides)
    check_overrides("train", overrides, sweep=True)
    sweeps = bool({"--multirun", "-m"} & {*flags})
    if sweeps and len(flags) > 1:
        raise InputError(f"{' '.join(flags)}: --multirun goes with no other flag")
    overrides = compose.with_experiment(overrides)
    # Otherwise Hydra would print exceptions itself.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    with ExitStack() as stack:
        try:
            if sweeps:
                directory = sweep_directory(overrides)
                overrides.append(directory_override(directory))
                stack.callback(show_jobs, directory)
            else:
                # The reader of --info may close the pipe: logging would print a traceback a line.
                stack.callback(setattr, logging, "raiseExceptions", logging.raiseExceptions)
                logging.raiseExceptions = False
            # The runs record the command of the user, which Hydra reads in another form.
            os.environ[COMMAND] = command_line()
            stack.callback(os.environ.pop, COMMAND)
            sys.argv[1:] = [*flags, *overrides, *search_path()]
            hydra.main(str(config_folder()), "train", version_base="1.3")(_job)()
        except HydraException as error:
            raise compose.composition_error("train", overrides, error) from error
        except ValueError as error:  # of flags that do not go together
            if sweeps:
                raise
            raise InputError(" ".join(str(error).split())) from error


def _resolve_auto(
    config: DictConfig, folder: Path, *, named: bool, fit_vocabulary: bool
) -> tuple[RunConfig, Path]:
    """The typed config and the run directory; ``checkpoint=auto`` may choose another."""
    if config.checkpoint != AUTO:
        return compose.run_settings(config), folder
    config.checkpoint = None
    settings = compose.run_settings(config)
    settings, folder, reason = resumed_or_new(
        settings, folder, named=named, fit_vocabulary=fit_vocabulary
    )
    print(f"checkpoint=auto: {reason}", file=sys.stderr)
    return settings, folder


def _job(config: DictConfig) -> float:
    """Run one job of a sweep, and record its score for the table at the end."""
    job = HydraConfig.get()
    if job.mode != RunMode.MULTIRUN:
        raise InputError("flags of Hydra go with --multirun, or show a config: --cfg job")
    with recorded(job) as record:
        best, objective = _trial(config)
        better = "lower" if objective.direction == "minimize" else "higher"
        record |= {"metric": objective.metric, "score": best, "better": better}
    return best


def _fetch_model(config: DictConfig) -> None:
    """Replace ``finetune_from=hf://USER/MODEL`` by the run in the cache."""
    if str(config.finetune_from).startswith(HUB):
        from transformer.interchange.translators import fetched

        config.finetune_from = str(fetched(config.finetune_from))


def _trial(config: DictConfig) -> "tuple[float, Objective]":
    """The best score of a job of a sweep on the validation text, and its objective."""
    from transformer.checkpoint.checkpoint import find_last
    from transformer.tasks.registry import task_class
    from transformer.training.callbacks.best_score import Objective, check_direction

    job = HydraConfig.get()
    _fetch_model(config)
    fit = not names_vocabulary_size(job.overrides.task)
    # The directory of a trial has its number: a sweep resumes only in a directory that is named.
    folder = Path(job.runtime.output_dir)
    settings, folder = _resolve_auto(config, folder, named=True, fit_vocabulary=fit)
    import_code(named_classes(settings))
    task = task_class(settings.task)
    metric = settings.objective or task.model_selection(settings).metric
    if metric not in (known := task.validation_metrics(settings)):
        raise InputError(
            f"objective={metric} is not there: a validation of this run has {', '.join(known)}"
        )
    objective = Objective(metric, settings.metrics.custom_better)
    check_direction(objective, job.sweeper.get("direction"))
    train_run(settings, folder, objective.metric, fit_vocabulary=fit)
    if has_checkpoint(folder):
        objective.recall(find_last(folder, tensors=False)[1])
    if objective.best is None:
        raise InputError("the trial ends before its first validation; let it train longer")
    return objective.best, objective
