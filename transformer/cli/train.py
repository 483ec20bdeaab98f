"""``train``: compose a config, or take that of the run to resume, and train.

A run has this process alone, those that it starts, or those of torchrun or SLURM.
"""

import json
import logging
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from transformer.checkpoint.run_directory import has_checkpoint, run_folder
from transformer.checkpoint.trust import named_classes
from transformer.cli.arguments import (
    check_overrides,
    config_folder,
    flags_and_overrides,
    names_vocabulary_size,
    nearest_key,
    parse_override,
    search_path,
)
from transformer.cli.config import (
    as_overrides,
    compose_config,
    composition_error,
    run_settings,
    with_experiment,
)
from transformer.cli.sweep import (
    directory_override,
    read_jobs,
    recorded,
    show_jobs,
    sweep_directory,
)
from transformer.common.errors import InputError
from transformer.common.files import HUB, given_path
from transformer.common.own_code import import_code
from transformer.common.processes import COMMAND, command_line, end_with_parent
from transformer.common.schema import override_key, typed_value
from transformer.runs.directory import LOG, OnlyNew, log_format
from transformer.runs.processes import RankCall, count_processes, train_in_processes
from transformer.runs.resume import resumed_config, resumed_or_new
from transformer.settings.run import RunConfig
from transformer.training.distributed.launcher import RUN
from transformer.training.distributed.ranks import Rank, end_rank, external_rank, reporting_once

if TYPE_CHECKING:
    from transformer.training.callbacks.best_score import Objective

AUTO = "auto"
"""``checkpoint=auto``: resume the run in the directory, or begin one."""

TRUST = "trust"
"""``trust=true``: text and code that the checkpoint names, wherever they are, may be used."""

SHORT = {"precision": "trainer.precision"}
"""Keys of conf/train.yaml that stand for another."""


def run_train(arguments: Sequence[str]) -> None:
    """Train, as one of the processes of a run or as the one that starts them."""
    process = external_rank()
    if process is not None and (process.rank > 0 or RUN in os.environ):
        _train_assigned(process)
        return
    checkpoint = named_checkpoint(arguments)
    if checkpoint is not None:
        train_run(resumed_settings(checkpoint, arguments), run_folder(checkpoint))
        return
    flags, overrides = flags_and_overrides(arguments)
    if not flags:
        _train_new(overrides)
    elif process is None:
        _run_hydra(flags, overrides)
    else:
        raise InputError("a sweep starts its own processes; call it without torchrun or srun")


def _train_new(overrides: Sequence[str]) -> None:
    """Train in a new run directory, or where ``checkpoint=auto`` finds a run to resume."""
    trust = [text for text in overrides if override_key(text) == TRUST]
    if not {f"{TRUST}=true", f"{TRUST}=false"}.issuperset(trust):
        raise InputError(f"{' '.join(trust)} must be {TRUST}=true or {TRUST}=false")
    launch = [text for text in overrides if override_key(text) == "launch"]
    if launch:
        raise InputError(f"{launch[0]} is for a sweep; add --multirun")
    config = compose_config("train", [text for text in overrides if text not in trust])
    folder = Path(HydraConfig.get().run.dir).absolute()
    if trust and config.finetune_from is None:
        raise InputError(f"{trust[0]} is for a checkpoint; add finetune_from= or checkpoint=")
    _take_initial_settings(config, overrides, trusted=f"{TRUST}=true" in trust)
    is_named = "hydra.run.dir" in _keys(overrides)
    fit = not names_vocabulary_size(overrides)
    settings, folder = _resolve_auto(config, folder, named=is_named, fit_vocabulary=fit)
    train_run(settings, folder, fit_vocabulary=fit)


def _keys(overrides: Sequence[str]) -> set[str]:
    return {override_key(text).lstrip("+") for text in overrides}


def _take_initial_settings(
    config: DictConfig, overrides: Sequence[str], *, trusted: bool = False
) -> None:
    """Take model and vocabulary of ``finetune_from``, if given, except for keys of the command.

    A run of the Hub, ``hf://USER/MODEL``, is replaced by that in the cache.
    """
    if config.finetune_from is None:
        if "experiment=finetune" in overrides:
            raise InputError("experiment=finetune adapts a trained model; add finetune_from=RUN")
        return
    from transformer.runs.finetuning import has_pattern, settings_of_initial

    if str(config.finetune_from).startswith(HUB):
        from transformer.interchange.translators import fetched

        config.finetune_from = str(fetched(config.finetune_from))
    path = given_path(str(config.finetune_from))
    if config.checkpoint == AUTO and not path.exists():
        return  # a run resumes without its initial weights
    keys = _keys(overrides)
    settings = settings_of_initial(
        path, config.task, keys, trusted=trusted, patterns=not has_pattern(config.model)
    )
    for key, value in settings.items():
        group, _, _ = key.partition(".")
        if key in keys or (group != "data" and group in keys):
            continue
        if "${" in str(value):
            raise InputError(f"finetune_from={path}: {key} holds ${{…}}, which would be replaced")
        if key != "data.features" or config.data.features is None:
            OmegaConf.update(config, key, list(value) if isinstance(value, tuple) else value)


def _resolve_auto(
    config: DictConfig, folder: Path, *, named: bool, fit_vocabulary: bool
) -> tuple[RunConfig, Path]:
    """The typed config and the run directory; ``checkpoint=auto`` may choose another."""
    if config.checkpoint != AUTO:
        return run_settings(config), folder
    config.checkpoint = None
    settings, folder, reason = resumed_or_new(
        run_settings(config), folder, named=named, fit_vocabulary=fit_vocabulary
    )
    print(f"checkpoint=auto: {reason}", file=sys.stderr)
    return settings, folder


def named_checkpoint(arguments: Sequence[str]) -> Path | None:
    """The path in ``checkpoint=PATH``, if there is one."""
    for argument in reversed(arguments):
        key, _, value = argument.partition("=")
        if key == "checkpoint" and value not in ("", "null", AUTO):
            is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            return given_path(value[1:-1] if is_quoted else value)
    return None


def resumed_settings(checkpoint: Path, arguments: Sequence[str]) -> RunConfig:
    """The config of the checkpoint, with the user's ``KEY=VALUE`` on top where a key may change."""
    changes: dict[str, Any] = {}
    short: dict[str, Any] = {}
    for argument in arguments:
        # A path may hold characters that Hydra reads as more than text.
        if override_key(argument) != "checkpoint":
            override = parse_override(argument)
            values = short if override.key_or_group in SHORT else changes
            values[override.key_or_group] = override.value()
    for key, value in short.items():
        changes.setdefault(SHORT[key], value)
    trusted = typed_value(changes.pop(TRUST, False), bool, TRUST)
    unknown = partial(_unknown_key, checkpoint)
    return resumed_config(checkpoint, changes, trusted=trusted, unknown=unknown)


def _unknown_key(checkpoint: Path, key: str, known: Collection[str]) -> str:
    """The message about a key that only the command knows: of Hydra, or a group; or nobody."""
    if key.startswith("hydra."):
        return f"{key} cannot change: a run resumes in its own directory"
    if key == "experiment":
        return (
            f"experiment=… cannot be chosen again: checkpoint={checkpoint} resumes with its own "
            "config; change single keys, such as GROUP.KEY=VALUE"
        )
    return f"unknown key {key}{nearest_key(key, known)}"


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


def _train_assigned(process: Rank) -> None:
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


def log_to_stderr(rank: int, log: Path, *, resumed: bool = False) -> None:
    """Log to stderr, ranks other than 0 warnings only; without what the ``log`` of the run has."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(OnlyNew(log, resumed=resumed))
    handler.setFormatter(log_format(rank))
    level = logging.INFO if rank == 0 else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)


def _run_hydra(flags: Sequence[str], overrides: Sequence[str]) -> None:
    """Let Hydra run the sweep of --multirun, or show what its other flags ask for."""
    overrides = as_overrides("train", overrides)
    check_overrides("train", overrides, sweep=True)
    sweeps = "--multirun" in flags or "-m" in flags
    if sweeps and len(flags) > 1:
        raise InputError(f"{' '.join(flags)}: --multirun goes with no other flag")
    overrides = with_experiment(overrides)
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
            hydra.main(str(config_folder()), "train", version_base="1.3")(_run_job)()
        except HydraException as error:
            raise composition_error("train", overrides, error) from error
        except ValueError as error:  # of flags that do not go together, or of Optuna
            if not sweeps:
                raise InputError(" ".join(str(error).split())) from error
            jobs = read_jobs(directory)
            if not jobs or any("error" not in job for job in jobs):
                raise
            # Optuna finds no best trial.
            raise InputError(
                "every job of the sweep failed; the table above has the error of each"
            ) from error


def _run_job(config: DictConfig) -> float:
    """Run one job of a sweep, and record its score for the table at the end."""
    job = HydraConfig.get()
    if job.mode != RunMode.MULTIRUN:
        raise InputError("flags of Hydra go with --multirun, or show a config: --cfg job")
    with recorded(job) as record:
        best, objective = _run_trial(config)
        better = "lower" if objective.direction == "minimize" else "higher"
        record |= {"metric": objective.metric, "score": best, "better": better}
    return best


def _run_trial(config: DictConfig) -> "tuple[float, Objective]":
    """The best score of a job of a sweep on the validation text, and its objective."""
    from transformer.checkpoint.checkpoint import find_last
    from transformer.tasks.registry import task_class
    from transformer.training.callbacks.best_score import Objective, check_direction

    job = HydraConfig.get()
    _take_initial_settings(config, job.overrides.task)
    fit = not names_vocabulary_size(job.overrides.task)
    # The directory of a trial has its number: a sweep resumes only in a directory that is named.
    folder = Path(job.runtime.output_dir)
    settings, folder = _resolve_auto(config, folder, named=True, fit_vocabulary=fit)
    import_code(named_classes(settings))
    task = task_class(settings.task)
    metric = settings.objective or task.model_selection(settings).metric
    known = task.validation_metrics(settings)
    if metric not in known:
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
