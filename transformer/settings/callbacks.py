"""The keys under ``callbacks.``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from transformer.common.schema import Range, Settings


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
