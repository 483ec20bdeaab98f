"""The config of a run as typed values; Hydra ends here.

It names the parts; common/schema.py checks types, and each dataclass the ranges of its fields.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import Range, typed, typed_value
from transformer.data.config import DataConfig
from transformer.data.tokenization.tokenizer import PAD, TokenizerConfig
from transformer.decoding.search.config import SearchConfig
from transformer.evaluation.metrics import MetricsConfig
from transformer.model.config import ModelConfig
from transformer.training.callbacks.config import CallbacksConfig, LoggerConfig
from transformer.training.callbacks.sweep_objective import check_objective
from transformer.training.losses.config import LossConfig
from transformer.training.optimization.divergence import RecoveryConfig
from transformer.training.optimization.optimizer import OptimizerConfig
from transformer.training.optimization.schedule import ScheduleConfig

PRECISIONS = ("32-true", "bf16-mixed", "auto")

BUDGET_STEP = 1024
"""Automatic budgets are multiples of this, so that similar devices get the same budget."""

TaskName = Literal["translation", "tagging", "language_modelling"]


@dataclass(frozen=True)
class TrainerConfig:
    """Arguments of ``pytorch_lightning.Trainer`` that conf/trainer/ sets, and some of our own."""

    accelerator: str
    strategy: Literal["auto", "ddp", "fsdp"]
    precision: str
    devices: int | str | Sequence[int]
    num_nodes: Annotated[int, Range(1)]
    max_steps: Annotated[int, Range(-1)]
    max_epochs: Annotated[int, Range(-1)] | None
    max_time: int | str | Mapping[str, int] | None
    accumulate_grad_batches: Annotated[int, Range(1)]
    gradient_clip_val: Annotated[float, Range(above=0)] | None
    val_check_interval: Annotated[int, Range(1)]
    log_every_n_steps: Annotated[int, Range(1)]
    limit_val_batches: int | None = None
    search_tokens: Annotated[int, Range(1)] | None = None
    reduce_bfloat16: bool = False
    compile: Literal["none", "layers"] = "none"

    def __post_init__(self) -> None:
        raise_objections(self._objections())

    def _objections(self) -> Iterator[str]:
        for key in ("max_steps", "max_epochs"):
            if getattr(self, key) == 0:
                yield f"trainer.{key}=0 must be at least 1; -1 sets no bound"
        time = self.max_time
        if isinstance(time, int | str) and not re.fullmatch(r"\d+(:\d\d){3}", str(time)):
            form = "DAYS:HOURS:MINUTES:SECONDS, such as 00:12:00:00, or null"
            yield f"trainer.max_time={time} must be {form}"
        if self.precision not in PRECISIONS:
            yield f"precision={self.precision} must be {' or '.join(PRECISIONS)}"
        if self.reduce_bfloat16 and self.strategy == "fsdp":
            yield "trainer.reduce_bfloat16=true sums whole gradients; set trainer=ddp, or false"


@dataclass(frozen=True)
class RunConfig:
    """All settings of a training run.

    Attributes:
        task: The task (``TASKS`` in tasks/registry.py).
        seed: Of weights, dropout, batch order and subword sampling.
        checkpoint: File to resume from; null starts a new run.
        finetune_from: Checkpoint, or run directory, whose weights and vocabulary a new run begins
            with; null begins with random weights. A resumed run does not read it again.
        objective: Metric that a trial of a sweep returns; null: the one that chooses the best
            checkpoint.
        test: Whether the test splits are scored after training.
        gradient_checkpointing: Compute each layer again in the backward pass
            (``activation_checkpointing.py``).
        resume_check: Updates of each half of a check that the run resumes exactly; null trains.
        keep_memory: Tell the allocator to keep freed memory (``cpu_allocator.py``).
        automatic_budget: Whether ``data.batch_tokens=auto`` is still to be measured
            (``auto_batch_size.py``); until then ``data`` has the smallest budget.
        model: Fields of ``ModelConfig`` but those that the tokenizer decides.
        trainer: Arguments of ``pytorch_lightning.Trainer``.
        decoding: The search that validates and tests a translator.
        metrics: How its output is compared with the references.
        resolved: The same as the plain values of ``config.yaml``.
    """

    task: TaskName
    seed: int
    checkpoint: Path | None
    finetune_from: Path | None
    objective: str | None
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
    """Turn the plain values of a composed config into typed ones; InputError if one is wrong."""
    hints: dict[str, Any] = get_type_hints(RunConfig)
    for derived in ("automatic_budget", "resolved"):
        del hints[derived]
    hints |= dict.fromkeys(("checkpoint", "finetune_from"), str | None)
    # First, as the length of the schedule is an interpolation of trainer.max_steps.
    hints = {"trainer": TrainerConfig} | {n: h for n, h in hints.items() if n != "trainer"}
    raise_objections(f"{name} is missing" for name in hints if name not in resolved)
    data = resolved["data"]
    automatic = isinstance(data, Mapping) and data.get("batch_tokens") == "auto"
    if automatic:
        longest = typed_value(data.get("max_length"), int, "data.max_length")
        data = {**data, "batch_tokens": min_budget(longest)}
    plain = {**resolved, "data": data}
    values = {name: typed_value(plain[name], hint, name) for name, hint in hints.items()}
    _check_values(values)
    for key in ("checkpoint", "finetune_from"):
        values[key] = None if values[key] is None else Path(values[key])
    values["trainer"] = asdict(values["trainer"])
    return RunConfig(**values, automatic_budget=automatic, resolved=resolved)


def _check_values(values: Mapping[str, Any]) -> None:
    for key, seed in (("seed", values["seed"]), ("data.seed", values["data"].seed)):
        if not 0 <= seed < 2**32:
            raise InputError(f"{key}={seed} must be from 0 to {2**32 - 1}")
    if values["objective"] is not None:
        check_objective(values["objective"])
    if ":" in values["decoding"].utility:
        raise InputError(
            f"decoding.utility={values['decoding'].utility} is a program, which no checkpoint "
            "names; train with chrf or bleu, and give it to translate or evaluate"
        )
    # The tokenizer decides the sizes later; other errors are raised before any text is read.
    model = sized_model(values["model"], 1, 1)
    if model.lora_rank and values["finetune_from"] is None:
        raise InputError(
            f"model.lora_rank={model.lora_rank} adapts trained weights; set finetune_from=RUN"
        )
    total, epochs = values["schedule"].total or 0, values["trainer"].max_epochs or -1
    ends = total > 0 or (total == -1 and epochs > 0)
    if values["schedule"].name == "cosine" and not ends:
        raise InputError(
            f"schedule.total={values['schedule'].total}: a cosine needs its last update; set "
            "trainer.max_steps, trainer.max_epochs or schedule.total, or take schedule=inverse_sqrt"
        )
    if values["trainer"].compile != "none" and _skips_blocks(model):
        raise InputError(
            f"trainer.compile=layers cannot compile model.attention={model.attention} here, which "
            "skips blocks of keys; set model.attention=sdpa or trainer.compile=none"
        )


def _skips_blocks(model: ModelConfig) -> bool:
    """Whether attention may skip blocks of keys."""
    full = model.pattern == "full" and model.decoder_pattern in (None, "full")
    return model.attention == "flex" or (model.attention == "auto" and not full)


def min_budget(max_length: int) -> int:
    """The smallest automatic budget that holds a pair of that many tokens."""
    return -(-(max_length + 1) // BUDGET_STEP) * BUDGET_STEP


def sized_model(model: Mapping[str, Any], inputs: int, outputs: int) -> ModelConfig:
    """The group ``model`` with the sizes of both vocabularies; raises InputError if it is wrong."""
    sizes = {"source_vocab_size": inputs, "target_vocab_size": outputs, "pad": PAD}
    return typed(ModelConfig, {**model, **sizes}, "model")
