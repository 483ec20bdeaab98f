"""All settings of a training run, which its checkpoints store."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Literal

from transformer.common.errors import InputError
from transformer.common.schema import Settings, typed
from transformer.settings.data import AugmentationConfig, DataConfig
from transformer.settings.decoding import SearchConfig
from transformer.settings.metrics import METRICS, OTHER_VALUES, MetricsConfig
from transformer.settings.model import OF_THE_TEXT, ModelConfig
from transformer.settings.sources import DEFAULT_FRONT_ENDS
from transformer.settings.tokenizer import VECTORS, TokenizerConfig
from transformer.settings.training import (
    CallbacksConfig,
    LoggerConfig,
    LossConfig,
    OptimizerConfig,
    RecoveryConfig,
    ScheduleConfig,
    TrainerConfig,
)


@dataclass(frozen=True)
class RunConfig(Settings):
    """All settings of a training run; ``conf/train.yaml`` has the same defaults, and explains them.

    The sizes of ``model`` are 0 until the tokenizer sets them; in a checkpoint they are set. Raises
    InputError if a value is wrong, or two contradict.
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
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    callbacks: CallbacksConfig = field(default_factory=CallbacksConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    decoding: SearchConfig = field(default_factory=SearchConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)

    def _objections(self) -> Iterator[str]:
        return _contradictions(self)


def run_config(values: Any) -> RunConfig:
    """Build the config of a mapping of plain values, by their keys; InputError if one is wrong."""
    return typed(RunConfig, values, "")


def plain_values(config: RunConfig) -> dict[str, Any]:
    """The values that ``run_config`` reads, as ``config.yaml`` has them: without sizes of text."""
    values = asdict(config)
    for name in OF_THE_TEXT:
        del values["model"][name]
    return _plain(values)


def dotted_values(config: RunConfig) -> dict[str, Any]:
    """The plain values by dotted key, such as ``trainer.max_steps``; also those of groups."""
    return dict(_dotted(plain_values(config), ""))


def _dotted(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        # The name of a corpus may have a dot, and is then no part of a key.
        if "." in key:
            continue
        yield f"{prefix}{key}", value
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")


def changed_config(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """The config with other values of dotted keys; InputError if a value is wrong."""
    values = plain_values(config)
    for key, value in changes.items():
        *groups, name = key.split(".")
        reduce(getitem, groups, values)[name] = value
    return run_config(values)


def stored_values(config: RunConfig) -> dict[str, Any]:
    """The values that ``run_config`` reads, as a checkpoint has them: with the sizes."""
    return _plain(asdict(config))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    # Paths become texts, tuples lists.
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain


def completed(config: RunConfig) -> RunConfig:
    """The config with what follows from the kinds of both sides.

    A source of files has a tokenizer of its own and a front end. Only target embeddings are tied if
    the sides have two kinds of tokens. Where the tokenizer has features, the text has them.
    """
    kind = config.data.source_kind
    features = config.tokenizer.features
    if kind == "text" and features is not None and config.data.features is None:
        config = replace(config, data=replace(config.data, features=features))
    if kind != "text":
        model = config.model
        front_end = model.front_end or DEFAULT_FRONT_ENDS[kind]
        if model.tie_embeddings != "none":
            model = replace(model, tie_embeddings="decoder")
        return replace(
            config,
            tokenizer=replace(config.tokenizer, source=kind, joint=False),
            model=replace(model, front_end=front_end),
        )
    source, target = config.tokenizer.algorithms
    if source == target or config.model.tie_embeddings != "all":
        return config
    return replace(config, model=replace(config.model, tie_embeddings="decoder"))


def check_objective(metric: str) -> None:
    """Raise InputError unless a validation could have this metric."""
    known = [f"val/{name}" for name in (*OTHER_VALUES, *METRICS)]
    if metric not in known:
        raise InputError(f"objective={metric} must be {' or '.join(known)}")


def _contradictions(config: RunConfig) -> Iterator[str]:
    model = config.model
    seeds = {"seed": config.seed, "data.seed": config.data.seed}
    yield from (
        f"{key}={seed} must be from 0 to {2**32 - 1}"
        for key, seed in seeds.items()
        if not 0 <= seed < 2**32
    )
    if config.objective is not None:
        check_objective(config.objective)
    yield from _bad_source(config)
    if ":" in config.decoding.utility:
        yield (
            f"decoding.utility={config.decoding.utility} is a program, which no checkpoint "
            "names; train with chrf or bleu, and give it to translate or evaluate"
        )
    if config.decoding.shortlist is not None:
        yield "training does not use decoding.shortlist; set it in translate or evaluate"
    if model.lora_rank and config.finetune_from is None:
        yield f"model.lora_rank={model.lora_rank} adapts trained weights; set finetune_from=RUN"
    total = config.schedule.ending_at(config.trainer.max_steps).total
    epochs = config.trainer.max_epochs or -1
    ends = total is not None and (total > 0 or (total == -1 and epochs > 0))
    if config.schedule.name in ("cosine", "linear") and not ends:
        yield (
            f"schedule.total={total}: schedule={config.schedule.name} needs its last update; set "
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
    yield from _shape_contradictions(config)
    if config.trainer.compile == "layers" and skips_blocks(model):
        yield (
            f"trainer.compile=layers cannot compile model.attention={model.attention} here, which "
            "skips blocks of keys; set model.attention=sdpa or trainer.compile=loss"
        )


def _bad_source(config: RunConfig) -> Iterator[str]:
    """Object to a source, text or files, that the model or the task cannot read."""
    kind = config.data.source_kind
    front_end = config.model.front_end
    reads = config.tokenizer.algorithms[0]
    if reads in VECTORS and reads != kind:
        yield f"tokenizer.source={reads}: set data.source_kind={reads} instead"
    if kind == "text" and front_end is not None:
        yield (
            f"model.front_end={front_end} reads vectors, and data.source_kind=text; set "
            "data.source_kind=speech, image or vectors, or leave it out"
        )
    if kind == "text":
        return
    if front_end is not None and (front_end == "patches") != (kind == "image"):
        yield f"model.front_end={front_end} does not read data.source_kind={kind}; leave it out"
    if front_end in ("whisper", "s2t") and kind != "speech":
        yield f"model.front_end={front_end} reads frames of sound, not {kind}; set linear"
    if config.task in ("denoising", "tagging", "language_modeling"):
        yield f"task={config.task} reads text; data.source_kind={kind} is for task=translation"
    if config.augmentation.active:
        yield f"augmentation disturbs text, not {kind}; set augmentation=none"
    if config.loss.alignment_weight:
        yield f"loss.alignment_weight links words, which {kind} has not; set it to 0"
    if config.tokenizer.sampling:
        yield f"tokenizer.sampling draws segmentations of text, not {kind}; set it to 0"


def _shape_contradictions(config: RunConfig) -> Iterator[str]:
    shapes = config.data.batch_shapes
    if config.trainer.cuda_graphs and not shapes:
        yield (
            "trainer.cuda_graphs=true needs few shapes of batches; set data.batch_shapes=32, or "
            "trainer.cuda_graphs=false"
        )
    loss = config.loss
    plain = loss.consistency == "none" and not loss.alignment_weight
    reads_text = config.data.source_kind == "text"
    drawn = config.data.streaming or config.augmentation.active or config.tokenizer.sampling
    fixed = reads_text and not drawn and not config.data.corpora
    if shapes and not (config.task == "translation" and plain and fixed):
        yield (
            f"data.batch_shapes={shapes} pads pairs of task=translation and of one corpus, whose "
            "lengths are known before training; set data.batch_shapes=0, or data.corpora=null "
            "data.streaming=false augmentation=none tokenizer.sampling=0 loss.consistency=none "
            "loss.alignment_weight=0"
        )


def skips_blocks(model: ModelConfig) -> bool:
    """Whether attention computes only the visible blocks of keys, which no compiled layer can."""
    full = model.pattern == "full" and model.decoder_pattern in (None, "full")
    return model.attention == "flex" or (model.attention == "auto" and not full)
