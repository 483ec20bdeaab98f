"""The config of a run as typed values; code below this module does not use Hydra."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import typed, typed_value
from transformer.settings.augmentation import AugmentationConfig
from transformer.settings.callbacks import CallbacksConfig
from transformer.settings.data import DataConfig
from transformer.settings.decoding import SearchConfig
from transformer.settings.logger import LoggerConfig
from transformer.settings.loss import LossConfig
from transformer.settings.metrics import METRICS, OTHER_VALUES, MetricsConfig
from transformer.settings.model import ModelConfig
from transformer.settings.optimizer import OptimizerConfig
from transformer.settings.recovery import RecoveryConfig
from transformer.settings.schedule import ScheduleConfig
from transformer.settings.tokenizer import PAD, TokenizerConfig
from transformer.settings.trainer import TrainerConfig

BUDGET_STEP = 1024
"""Automatic budgets are multiples of this, so that similar devices get the same budget."""

_SIZES = ("source_vocab_size", "target_vocab_size", "pad")
"""Fields of the model that the tokenizer sets."""


@dataclass(frozen=True)
class RunConfig:
    """All settings of a training run; ``conf/train.yaml`` has the same defaults, and explains them.

    ``model`` has the fields of ``ModelConfig`` that are not its defaults; the tokenizer sets the
    sizes. ``automatic_budget``: ``data.batch_tokens=auto`` is still to be measured
    (auto_batch_size.py); until then ``data`` has the smallest budget. ``resolved`` is the same
    config as the plain values of ``config.yaml``; ``train`` sets it. Raises InputError if a value
    is wrong, or two contradict.
    """

    task: str = "translation"
    seed: int = 1
    checkpoint: Path | None = None
    finetune_from: Path | None = None
    objective: str | None = None
    test: bool = True
    report: Literal["end", "live", "none"] = "end"
    gradient_checkpointing: bool = False
    keep_memory: bool = True
    data: DataConfig = field(default_factory=DataConfig)
    automatic_budget: bool = False
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    model: Mapping[str, Any] = field(default_factory=dict)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    callbacks: CallbacksConfig = field(default_factory=CallbacksConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    decoding: SearchConfig = field(default_factory=SearchConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    resolved: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hints: dict[str, Any] = get_type_hints(RunConfig)
        for name, hint in hints.items():
            value = getattr(self, name)
            if isinstance(hint, type) and is_dataclass(hint):
                if not isinstance(value, hint):
                    raise InputError(f"{name} must be a {hint.__name__}")
                typed(hint, asdict(value), name)
        if isinstance(self.model, ModelConfig):
            raise InputError('model must be a mapping of what differs, such as {"d_model": 64}')
        # The tokenizer decides the sizes later; other errors are raised before any text is read.
        model = sized_model(self.model, 1, 1)
        completed = {key: v for key, v in model.to_dict().items() if key not in _SIZES}
        object.__setattr__(self, "model", completed)
        raise_objections(_contradictions(self, model))


def run_config(resolved: Mapping[str, Any]) -> RunConfig:
    """Convert a composed config to typed values; InputError if a value is wrong."""
    hints: dict[str, Any] = get_type_hints(RunConfig)
    for derived in ("automatic_budget", "resolved"):
        del hints[derived]
    hints |= dict.fromkeys(("checkpoint", "finetune_from"), str | None)
    # First, as the length of the schedule is an interpolation of trainer.max_steps.
    hints = {"trainer": TrainerConfig} | {n: h for n, h in hints.items() if n != "trainer"}
    missing = {"report": RunConfig.report}  # of runs before there were reports
    raise_objections(f"{name} is missing" for name in hints.keys() - missing.keys() - {*resolved})
    data = resolved["data"]
    automatic = isinstance(data, Mapping) and data.get("batch_tokens") == "auto"
    if automatic:
        longest = 1 + typed_value(data.get("max_length"), int, "data.max_length")
        # The smallest budget that holds one pair.
        data = {**data, "batch_tokens": math.ceil(longest / BUDGET_STEP) * BUDGET_STEP}
    plain = {**missing, **resolved, "data": data}
    values = {name: typed_value(plain[name], hint, name) for name, hint in hints.items()}
    for key in ("checkpoint", "finetune_from"):
        values[key] = None if values[key] is None else Path(values[key])
    return _with_total(RunConfig(**values, automatic_budget=automatic, resolved=resolved))


def with_resolved(config: RunConfig) -> RunConfig:
    """The config, completed by ``resolved`` and the end of its cosine schedule."""
    config = _with_total(config)
    return config if config.resolved else replace(config, resolved=plain_values(config))


def _with_total(config: RunConfig) -> RunConfig:
    if config.schedule.name != "cosine" or config.schedule.total is not None:
        return config
    return replace(config, schedule=replace(config.schedule, total=config.trainer.max_steps))


def plain_values(config: RunConfig) -> dict[str, Any]:
    """The values that ``run_config`` reads, as ``config.yaml`` has them."""
    config = _with_total(config)
    values = {key: value for key, value in asdict(config).items() if key != "resolved"}
    if values.pop("automatic_budget"):
        values["data"]["batch_tokens"] = "auto"
    values["precision"] = config.trainer.precision
    # Paths become texts, tuples lists.
    return json.loads(json.dumps(values, default=str))


def check_objective(metric: str) -> None:
    """Raise InputError unless a validation could have this metric."""
    known = [f"val/{name}" for name in (*OTHER_VALUES, *METRICS)]
    if metric not in known:
        raise InputError(f"objective={metric} must be {' or '.join(known)}")


def _contradictions(config: RunConfig, model: ModelConfig) -> Iterator[str]:
    seeds, most = {"seed": config.seed, "data.seed": config.data.seed}, 2**32 - 1
    yield from (f"{k}={n} must be from 0 to {most}" for k, n in seeds.items() if not 0 <= n <= most)
    if config.objective is not None:
        check_objective(config.objective)
    if ":" in config.decoding.utility:
        yield (
            f"decoding.utility={config.decoding.utility} is a program, which no checkpoint "
            "names; train with chrf or bleu, and give it to translate or evaluate"
        )
    if config.decoding.shortlist is not None:
        yield "training does not use decoding.shortlist; set it in translate or evaluate"
    if model.lora_rank and config.finetune_from is None:
        yield f"model.lora_rank={model.lora_rank} adapts trained weights; set finetune_from=RUN"
    total, epochs = config.schedule.total, config.trainer.max_epochs or -1
    total = config.trainer.max_steps if total is None else total
    ends = total > 0 or (total == -1 and epochs > 0)
    if config.schedule.name == "cosine" and not ends:
        yield (
            f"schedule.total={total}: a cosine needs its last update; set "
            "trainer.max_steps, trainer.max_epochs or schedule.total, or take schedule=inverse_sqrt"
        )
    if config.data.streaming and epochs > 0:
        yield (
            f"trainer.max_epochs={epochs}: a stream does not know how long an epoch is; set "
            "trainer.max_steps or trainer.max_time"
        )
    if config.trainer.strategy == "fsdp" and (config.callbacks.ema_decay or model.layer_drop):
        yield (
            "trainer=fsdp shards all weights and needs every layer on every rank; set "
            "callbacks.ema_decay=0 model.layer_drop=0"
        )
    if config.trainer.compile == "layers" and skips_blocks(model):
        yield (
            f"trainer.compile=layers cannot compile model.attention={model.attention} here, which "
            "skips blocks of keys; set model.attention=sdpa or trainer.compile=loss"
        )


def skips_blocks(model: ModelConfig) -> bool:
    """Whether attention computes only the visible blocks of keys, which no compiled layer can."""
    full = model.pattern == "full" and model.decoder_pattern in (None, "full")
    return model.attention == "flex" or (model.attention == "auto" and not full)


def sized_model(model: Mapping[str, Any], inputs: int, outputs: int) -> ModelConfig:
    """The group ``model`` with the sizes of both vocabularies; raises InputError if it is wrong."""
    sizes = dict(zip(_SIZES, (inputs, outputs, PAD), strict=True))
    return typed(ModelConfig, {**model, **sizes}, "model")
