"""The tasks by name, and the scores of a trained one; it imports Lightning only for a task."""

import logging
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import torch

from transformer.checkpoint.checkpoint import (
    SINGLE_STACKS,
    TEXT_TO_TEXT,
    checkpoint_task,
    portable_part,
)
from transformer.common.errors import InputError
from transformer.common.own_code import own_class
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.reports.scores import failures_table, save_report, scores_table
from transformer.settings.run import RunConfig

if TYPE_CHECKING:  # they import Lightning, which takes seconds
    from transformer.tasks.base import Task

logger = logging.getLogger(__name__)

TASKS = {
    "translation": "transformer.tasks.translation:TranslationTask",
    "denoising": "transformer.tasks.denoising:Denoising",
    "tagging": "transformer.tasks.tagging:Tagging",
    "language_modeling": "transformer.tasks.language_modeling:LanguageModeling",
}
"""The names of the classes behind ``task=NAME``: only the module of the task is imported."""


def task_class(name: str) -> "type[Task]":
    """The class behind ``task=NAME``, or ``MODULE:CLASS`` of the user; InputError without one."""
    if name not in TASKS:
        if ":" not in name:
            raise InputError(f"task={name} must be {' or '.join(TASKS)}, or MODULE:CLASS")
        from transformer.tasks.base import Task

        # mypy takes an abstract class for no type.
        return own_class("task", name, Task)  # type: ignore[type-abstract]
    return resolve_name(TASKS[name])


def is_translation(name: str) -> bool:
    """Whether a task translates pairs: ``translation``, or a class of the user derived from it."""
    if name in (*TEXT_TO_TEXT, *SINGLE_STACKS):  # their classes would import Lightning
        return name == "translation"
    return issubclass(task_class(name), resolve_name(TASKS["translation"]))


def make_task(config: RunConfig, payload: dict[str, Any] | None = None) -> "Task":
    """The task of a run, with the tokenizer of an initial checkpoint; InputError if they differ."""
    task = task_class(config.task)
    if payload is None:
        return task(config, None)
    trained = checkpoint_task(payload)
    resumed = config.checkpoint is not None
    both_translate = trained in TEXT_TO_TEXT and config.task in TEXT_TO_TEXT
    if trained != config.task and (resumed or not both_translate):
        key = "checkpoint" if resumed else "finetune_from"
        raise InputError(
            f"{key}={getattr(config, key)} was trained for task={trained}; it cannot continue with "
            f"task={config.task}"
        )
    return task(config, Tokenizer.from_state(portable_part(payload).tokenizer))


def test(folder: Path, task: "Task", device: torch.device) -> dict[str, float]:
    """Score the test splits with the best checkpoint on a device; log and write the results."""
    evaluate = task.evaluator(folder, device)
    metrics: dict[str, float] = {}
    for split in _tests(task):
        scores, hypotheses, failures = evaluate(split)
        logger.info("%s", scores_table(split, scores))
        if failures is not None:
            logger.info("%s", failures_table(failures))
        save_report(folder, split, scores, hypotheses, failures)
        metrics |= {f"{split}/{score.name.lower()}": score.value for score in scores}
    return metrics


def untested(folder: Path, task: "Task") -> bool:
    """Whether test splits of a run were not scored, as with ``test=false``."""
    return not all((folder / f"{split}.json").exists() for split in _tests(task))


def _tests(task: "Task") -> list[str]:
    return [split for split in task.data.splits if split != "validation"]
