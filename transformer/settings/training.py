"""Settings of training: optimizer, schedule, loss, trainer, callbacks, recovery and loggers."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings


@dataclass(frozen=True)
class TrainerConfig(Settings, group="trainer"):
    """The arguments of ``pytorch_lightning.Trainer`` in conf/trainer/, and our own arguments."""

    accelerator: str = "cpu"
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    precision: Literal["32-true", "bf16-mixed", "auto"] = "32-true"
    devices: int | str | Sequence[int] = 1
    num_nodes: Annotated[int, Range(1)] = 1
    max_steps: Annotated[int, Range(-1)] = 10_000
    max_epochs: Annotated[int, Range(-1)] | None = -1
    max_time: int | str | Mapping[str, int] | None = None
    accumulate_grad_batches: Annotated[int, Range(1)] = 1
    gradient_clip_val: Annotated[float, Range(above=0)] | None = 1.0
    val_check_interval: Annotated[int, Range(1)] = 1000
    log_every_n_steps: Annotated[int, Range(1)] = 50
    limit_val_batches: int | None = None
    search_tokens: Annotated[int, Range(1)] | None = None
    compile: Literal["auto", "none", "loss", "layers"] = "auto"
    cuda_graphs: bool = False

    def _objections(self) -> Iterator[str]:
        for key in ("max_steps", "max_epochs"):
            if getattr(self, key) == 0:
                yield f"trainer.{key}=0 must be at least 1; -1 sets no bound"
        time = self.max_time
        if isinstance(time, int | str) and not re.fullmatch(r"\d+(:\d\d){3}", str(time)):
            form = "DAYS:HOURS:MINUTES:SECONDS, such as 00:12:00:00, or null"
            yield f"trainer.max_time={time} must be {form}"


Consistency = Literal["none", "r_drop"]


@dataclass(frozen=True)
class LossConfig(Settings, group="loss"):
    """Settings of the loss; ``conf/loss/label_smoothed.yaml`` has the defaults, and explains them.

    ``bfloat16`` multiplies in the fused form, with a relative error of the gradient of 3e-3. Guided
    alignment: guided_alignment.py; ``consistency``: r_drop.py.
    """

    label_smoothing: Annotated[float, Range(0, below=1)] = 0.1
    chunk: Annotated[int, Range(0)] = 512
    bfloat16: bool | Literal["auto"] = False
    alignment_weight: Annotated[float, Range(0)] = 0.0
    alignment_layer: int | None = None
    alignment_head: int = 0
    consistency: Consistency = "none"
    consistency_weight: Annotated[float, Range(0, below=math.inf)] = 0.0

    def _objections(self) -> Iterator[str]:
        if self.bfloat16 and not self.chunk:
            value = str(self.bfloat16).lower()
            yield f"loss.bfloat16={value} needs the fused form; set loss.chunk=512"
        if self.consistency == "none":
            return
        if not self.consistency_weight:
            yield f"loss.consistency={self.consistency} needs loss.consistency_weight above 0"
        if self.alignment_weight:
            yield (
                f"loss.alignment_weight={self.alignment_weight} guides one pass, and "
                f"loss.consistency={self.consistency} makes two; set loss.alignment_weight=0 or "
                "loss.consistency=none"
            )


@dataclass(frozen=True)
class OptimizerConfig(Settings, group="optimizer"):
    """Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019) or Muon (training/muon.py).

    ``lr`` is the peak, or the factor of ``noam``. ``weight_decay`` applies to matrices only. The
    last two are of Muon, which steps all weights but the matrices of the layers as AdamW.
    """

    name: Literal["adam", "adamw", "muon"] = "adam"
    lr: Annotated[float, Range(above=0, below=math.inf)] = 2e-3
    betas: tuple[float, float] = (0.9, 0.98)
    eps: Annotated[float, Range(above=0, below=math.inf)] = 1e-9
    weight_decay: Annotated[float, Range(0, below=math.inf)] = 0.0
    momentum: Annotated[float, Range(0, below=1)] = 0.9
    bfloat16: bool | Literal["auto"] = "auto"

    def _objections(self) -> Iterator[str]:
        if not all(0 <= beta < 1 for beta in self.betas):
            yield f"optimizer.betas={list(self.betas)} must be from 0 and below 1"


@dataclass(frozen=True)
class ScheduleConfig(Settings, group="schedule"):
    """Which schedule, and how long it warms up; ``conf/schedule`` explains the keys."""

    name: Literal["inverse_sqrt", "noam", "cosine", "linear", "constant"] = "cosine"
    warmup: Annotated[int, Range(0)] = 1000
    total: int | None = None
    floor: Annotated[float, Range(0, 1)] = 0.0

    def ending_at(self, update: int) -> "ScheduleConfig":
        """Cosine and linear end at this update, unless ``total`` says another."""
        return replace(self, total=update) if self.total in (None, -1) else self


@dataclass(frozen=True)
class CallbacksConfig(Settings, group="callbacks"):
    """Validation, averaging, stopping and checkpoints; ``conf/train.yaml`` explains the keys."""

    ema_decay: Annotated[float, Range(0, below=1)] = 0.0
    patience: Annotated[int, Range(1)] | None = None
    keep_last: int = 5
    save_interval: Annotated[int, Range(1)] | None = 1000
    samples: int = 3
    quality: bool = True
    own: Sequence[str] = ()


@dataclass(frozen=True)
class RecoveryConfig(Settings, group="recovery"):
    """Criteria of a bad update, and the reaction; ``conf/train.yaml`` explains the keys."""

    explosion: Annotated[float, Range(above=0)] | None = 5.0
    skips: Annotated[int, Range(1)] = 10
    returns: Annotated[int, Range(0)] = 3
    lr_factor: Annotated[float, Range(above=0, most=1)] = 0.5


@dataclass(frozen=True)
class WandbConfig(Settings, group="logger.wandb"):
    """Weights & Biases; offline, its record stays in the run directory."""

    project: str = "transformer"
    offline: bool = False


@dataclass(frozen=True)
class LoggerConfig(Settings, group="logger"):
    """Outputs of the metrics: ``metrics.csv``, ``tensorboard/``, and a service."""

    csv: bool = True
    tensorboard: bool = True
    wandb: WandbConfig | None = None
