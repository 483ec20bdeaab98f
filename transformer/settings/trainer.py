"""The keys under ``trainer.``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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

    def _objections(self) -> Iterator[str]:
        for key in ("max_steps", "max_epochs"):
            if getattr(self, key) == 0:
                yield f"trainer.{key}=0 must be at least 1; -1 sets no bound"
        time = self.max_time
        if isinstance(time, int | str) and not re.fullmatch(r"\d+(:\d\d){3}", str(time)):
            form = "DAYS:HOURS:MINUTES:SECONDS, such as 00:12:00:00, or null"
            yield f"trainer.max_time={time} must be {form}"
