"""The run as plain, typed values: where Hydra ends.

It names the parts; schema.py checks each value's type, and the dataclass that holds it its meaning.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from transformer.common.errors import InputError, did_you_mean
from transformer.common.schema import typed, typed_value
from transformer.data.modules.translation import DataConfig
from transformer.data.tokenization.tokenizer import PAD, TokenizerConfig
from transformer.decoding.search.config import SearchConfig
from transformer.evaluation.metrics import MetricsConfig
from transformer.model.checkpoint.validation import GROUPS
from transformer.model.config import ModelConfig
from transformer.training.callbacks.config import CallbacksConfig, LoggerConfig
from transformer.training.callbacks.sweep_objective import Metric
from transformer.training.losses.config import LossConfig
from transformer.training.optimization.divergence import RecoveryConfig
from transformer.training.optimization.optimizer import OptimizerConfig
from transformer.training.optimization.schedule import ScheduleConfig

PRECISIONS = ("32-true", "bf16-mixed")

TRAINER: dict[str, Any] = {
    **dict.fromkeys(("accelerator", "strategy", "precision"), str),
    "devices": int | str | Sequence[int],
    **dict.fromkeys(("num_nodes", "max_steps", "accumulate_grad_batches"), int),
    **dict.fromkeys(("val_check_interval", "log_every_n_steps"), int),
    "max_epochs": int | None,
    "gradient_clip_val": float | None,
}
"""Arguments of ``pytorch_lightning.Trainer`` that conf/trainer/ sets, but ``max_time``."""

BUDGET_STEP = 1024
"""Automatic budgets are multiples of this: cards of one kind then come to the same one."""

TaskName = Literal["translation", "tagging", "language_modelling"]


@dataclass(frozen=True)
class RunConfig:
    """Everything a training run is made of.

    Attributes:
        task: What is learnt (``TASKS`` in tasks.py).
        seed: Of weights, dropout, batch order and subword sampling.
        checkpoint: File to go on from; null starts anew.
        finetune_from: Checkpoint, or run directory, whose weights and vocabulary a new run begins
            with; null begins with random weights. A run that goes on does not read it again.
        objective: What a trial of a sweep hands back; null: what chooses the best checkpoint.
        test: Whether the test splits are scored when training is over.
        gradient_checkpointing: Compute each layer again in the backward pass
            (``recomputation.py``).
        resume_check: Updates of each half of a check that the run goes on exactly; null trains.
        keep_memory: Tell the allocator to keep freed memory (``memory.py``).
        data: Text and batches.
        tokenizer: Subwords.
        model: Fields of ``ModelConfig`` but those that the tokenizer decides.
        loss: The loss.
        optimizer: The optimiser.
        schedule: The learning rate.
        recovery: What to do about an update that would do harm.
        automatic_budget: Whether ``data.batch_tokens=auto`` is still to be measured (budget.py);
            until then ``data`` has the smallest budget there is.
        trainer: As the arguments of ``pytorch_lightning.Trainer``.
        callbacks: Validation, averaging, stopping.
        logger: Where metrics go.
        decoding: The search that validates and tests a translator.
        metrics: How its translations are compared with the references.
        resolved: The same as the plain values of ``config.yaml``.
    """

    task: TaskName
    seed: int
    checkpoint: Path | None
    finetune_from: Path | None
    objective: Metric | None
    test: bool
    gradient_checkpointing: bool
    resume_check: int | None
    keep_memory: bool
    data: DataConfig
    automatic_budget: bool
    tokenizer: TokenizerConfig
    model: Mapping[str, Any]
    loss: LossConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    recovery: RecoveryConfig
    trainer: Mapping[str, Any]
    callbacks: CallbacksConfig
    logger: LoggerConfig
    decoding: SearchConfig
    metrics: MetricsConfig
    resolved: Mapping[str, Any]


def run_config(resolved: Mapping[str, Any]) -> RunConfig:
    """Turn the plain values of a composed config into typed ones.

    Raises:
        InputError: A key is missing or unknown, or a value has the wrong type, or would not be
            read from a checkpoint.
    """
    _check_layout(resolved)
    checkpoint = typed_value(resolved["checkpoint"], str | None, "checkpoint")
    initial = typed_value(resolved["finetune_from"], str | None, "finetune_from")
    _check_ranges(resolved)
    # What the tokenizer decides comes later; the rest is refused before any text is read.
    sized_model(resolved["model"], 1, 1)
    data = dict(resolved["data"])
    if automatic := data.get("batch_tokens") == "auto":
        longest = typed_value(data.get("max_length"), int, "data.max_length")
        data["batch_tokens"] = least_budget(longest)
    return RunConfig(
        task=typed_value(resolved["task"], TaskName, "task"),
        seed=typed_value(resolved["seed"], int, "seed"),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        finetune_from=None if initial is None else Path(initial),
        objective=typed_value(resolved["objective"], Metric | None, "objective"),
        test=typed_value(resolved["test"], bool, "test"),
        gradient_checkpointing=typed_value(
            resolved["gradient_checkpointing"], bool, "gradient_checkpointing"
        ),
        resume_check=typed_value(resolved["resume_check"], int | None, "resume_check"),
        keep_memory=typed_value(resolved["keep_memory"], bool, "keep_memory"),
        data=typed(DataConfig, data, "data"),
        automatic_budget=automatic,
        tokenizer=typed(TokenizerConfig, resolved["tokenizer"], "tokenizer"),
        model=dict(resolved["model"]),
        loss=typed(LossConfig, resolved["loss"], "loss"),
        optimizer=typed(OptimizerConfig, resolved["optimizer"], "optimizer"),
        schedule=typed(ScheduleConfig, resolved["schedule"], "schedule"),
        recovery=typed(RecoveryConfig, resolved["recovery"], "recovery"),
        trainer=dict(resolved["trainer"]),
        callbacks=typed(CallbacksConfig, resolved["callbacks"], "callbacks"),
        logger=typed(LoggerConfig, resolved["logger"], "logger"),
        decoding=_kept_search(resolved["decoding"]),
        metrics=typed(MetricsConfig, resolved["metrics"], "metrics"),
        resolved=resolved,
    )


def _check_layout(resolved: Mapping[str, Any]) -> None:
    """Refuse values that are not laid out as conf/train.yaml lays them out.

    Raises:
        InputError: A key or group is missing, or one of the trainer is unknown.
    """
    made_here = {"automatic_budget", "resolved"}
    for name in {field.name for field in fields(RunConfig)} - made_here:
        if name not in resolved:
            raise InputError(f"{name} is missing")
    for group in GROUPS:
        if not isinstance(resolved[group], Mapping):
            raise InputError(f"{group} must be a group of keys")
    trainer = resolved["trainer"]
    known_keys = {*TRAINER, "max_time"}
    for name in sorted(map(str, trainer.keys() ^ known_keys)):
        known = f"is not a setting of trainer{did_you_mean(name, known_keys)}"
        raise InputError(f"trainer.{name} {known if name in trainer else 'is missing'}")
    for name, kind in TRAINER.items():
        typed_value(trainer[name], kind, f"trainer.{name}")
    time = trainer["max_time"]
    written = re.fullmatch(r"\d+(:\d\d){3}", time) if isinstance(time, str) else False
    if not (written or isinstance(time, Mapping | None)):
        raise InputError(
            f"trainer.max_time={time} must be DAYS:HOURS:MINUTES:SECONDS, such as "
            "00:12:00:00, or null"
        )


def _check_ranges(resolved: Mapping[str, Any]) -> None:
    """Refuse numbers that Lightning does not see, or sees too late.

    Raises:
        InputError: One is out of its range.
    """
    trainer = resolved["trainer"]
    counts = ("accumulate_grad_batches", "log_every_n_steps", "val_check_interval", "num_nodes")
    for key in counts:
        if trainer[key] < 1:
            raise InputError(f"trainer.{key}={trainer[key]} must be at least 1")
    clip = trainer["gradient_clip_val"]
    if clip is not None and not clip > 0:
        raise InputError(f"trainer.gradient_clip_val={clip} must be above 0, or null")
    updates = trainer["max_steps"]
    if updates < 1 and updates != -1:
        raise InputError(f"trainer.max_steps={updates} must be at least 1; -1 sets no bound")
    if trainer["precision"] not in PRECISIONS:
        raise InputError(
            f"precision={trainer['precision']} must be {' or '.join(PRECISIONS)}; float16 would "
            "need a scaled loss, which is not there"
        )
    epochs = trainer["max_epochs"]
    if epochs is not None and epochs < 1 and epochs != -1:
        raise InputError(f"trainer.max_epochs={epochs} must be at least 1; -1 sets no bound")
    for key, value in (("seed", resolved["seed"]), ("data.seed", resolved["data"]["seed"])):
        if not 0 <= typed_value(value, int, key) < 2**32:
            raise InputError(f"{key}={value} must be from 0 to {2**32 - 1}")


def least_budget(max_length: int) -> int:
    """The smallest automatic budget that holds a pair of that many tokens."""
    return -(-(max_length + 1) // BUDGET_STEP) * BUDGET_STEP


def _kept_search(decoding: Mapping[str, Any]) -> SearchConfig:
    """The search, which the checkpoints of the run will carry."""
    search = typed(SearchConfig, decoding, "decoding")
    if ":" in search.utility:
        raise InputError(
            f"decoding.utility={search.utility} is a program, which no checkpoint names; train "
            "with chrf or bleu, and give it to translate or evaluate"
        )
    return search


def sized_model(model: Mapping[str, Any], inputs: int, outputs: int) -> ModelConfig:
    """The user's model with the sizes that the tokenizer decides.

    Args:
        model: The group ``model`` of the run's config.
        inputs: Size of the vocabulary that is read.
        outputs: Size of what is predicted.

    Raises:
        InputError: A key is unknown, or a value has the wrong type or is out of its range.
    """
    sizes = {"source_vocab_size": inputs, "target_vocab_size": outputs, "pad": PAD}
    return typed(ModelConfig, {**model, **sizes}, "model")
