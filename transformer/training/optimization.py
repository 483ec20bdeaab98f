"""Optimizer, schedule of the learning rate, and detection of divergence."""

import logging
import math
import re
import statistics
from collections import deque
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.common.errors import InputError
from transformer.common.files import open_unlinked
from transformer.data.batching.loader import Update
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.layers.lora import DOWN, UP
from transformer.settings.model import Frozen, ModelConfig
from transformer.settings.training import OptimizerConfig, RecoveryConfig, ScheduleConfig
from transformer.training.muon import Muon, hidden_matrices
from transformer.training.precision import multiplies_bfloat16

logger = logging.getLogger(__name__)

# Optimizer.


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> Optimizer:
    """Adam as in the paper, AdamW or Muon, over the weights that learn; only matrices decay."""
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    if config.name == "muon":
        # Adapters are not matrices: then all is stepped by AdamW, which config_warnings.py says.
        matrices = hidden_matrices(model)
        narrow = config.bfloat16
        if narrow == "auto":
            narrow = multiplies_bfloat16(learning[0].device) is True
        return Muon(
            matrices,
            [weight for weight in learning if weight not in matrices],
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            momentum=config.momentum,
            dtype=torch.bfloat16 if narrow else torch.float32,
        )
    groups = [
        {"params": [p for p in learning if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in learning if p.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = {"adam": Adam, "adamw": AdamW}[config.name]
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


_FROZEN_NAMES: dict[Frozen, str] = {
    "embeddings": r"(source_|target_|)embedding\.",
    "encoder": r"(encoder|stack)\.",
    "decoder": r"decoder\.",
    "norms": r".*norm\.",
    "output": r"projection\.",
}
"""Names of the weights of each group begin with this; the stack of a tagger is an encoder."""


def freeze(model: nn.Module, config: ModelConfig) -> None:
    """Freeze ``model.freeze``, or all except adapters: no gradient, no moments, no change.

    Raises InputError if no weight learns.
    """
    frozen = [re.compile(_FROZEN_NAMES[group]) for group in config.freeze]
    for name, weight in model.named_parameters(remove_duplicate=False):
        is_below_adapter = config.lora_rank > 0 and not name.endswith((DOWN, UP))
        if is_below_adapter or any(group.match(name) for group in frozen):
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InputError(f"model.freeze=[{','.join(config.freeze)}] leaves no weight to learn")


# Schedule: each is a factor of ``optimizer.lr``.


def schedule_factor(config: ScheduleConfig, d_model: int, update: int) -> float:
    """The factor of the n-th update, counted from 1: it rises linearly to 1 at ``warmup``.

    Then ``inverse_sqrt`` falls as ``1 / sqrt(update)``, ``cosine`` by half a cosine to ``floor``
    (Loshchilov and Hutter 2017), ``linear`` by a line (Defazio et al. 2023), and ``constant``
    stays. ``noam`` has no peak of 1.
    """
    warmup = config.warmup
    if config.name == "noam":
        return noam(update, warmup, d_model)
    if update < warmup:
        return update / warmup
    if config.name == "inverse_sqrt":
        return math.sqrt(max(warmup, 1) / update)
    if config.name == "constant":
        return 1.0
    progress = min((update - warmup) / max((config.total or 0) - warmup, 1), 1.0)
    left = 1 - progress if config.name == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return config.floor + (1 - config.floor) * left


def noam(update: int, warmup: int, d_model: int) -> float:
    """``d_model^-0.5 min(update^-0.5, update warmup^-1.5)``: Vaswani et al. 2017, equation 3."""
    return d_model**-0.5 * min(update**-0.5, update * max(warmup, 1) ** -1.5)


def build_schedule(config: ScheduleConfig, optimizer: Optimizer, d_model: int) -> LambdaLR:
    """A scheduler that steps once per update."""
    # torch counts finished updates; the formulas take the number of the next update.
    return LambdaLR(optimizer, lambda done: schedule_factor(config, d_model, done + 1))


# Divergence.

_WINDOW = 100
"""Good updates whose median is the usual loss."""

_MIN_LOSSES = 10
"""Good updates before there is a usual loss."""


class Diverged(Exception):
    """Too many bad updates in a row; ``update`` is the last. They changed no weights."""

    def __init__(self, reason: str, update: Update[Any], number: int) -> None:
        super().__init__(reason)
        self.update = update
        self.number = number


class DivergenceDetector:
    """Classifies updates as good or bad on their device, and counts them on the host.

    A bad update is skipped (Chowdhery et al. 2022, "PaLM", section 5.1).
    """

    def __init__(self, config: RecoveryConfig) -> None:
        self.config = config
        self.in_a_row = 0
        self.skipped = 0
        self.returned = 0
        self._losses: deque[float] = deque(maxlen=_WINDOW)

    def accepts(self, loss: Tensor, norm: Tensor) -> Bool[Tensor, ""]:
        """Whether to apply an update, by its loss (nats per token) and norm over all ranks."""
        good = loss.isfinite() & norm.isfinite()
        usual = self._usual_loss()
        if usual is None or self.config.explosion is None:
            return good
        return good & (loss <= usual + self.config.explosion)

    def count(self, good: bool, loss: float, norm: float, update: int) -> None:
        """Count an update, accepted or not; its number is for the log."""
        if good:
            self.in_a_row = 0
            self._losses.append(loss)
            return
        self.in_a_row += 1
        self.skipped += 1
        counts = f"{self.in_a_row} in a row, {self.skipped} in all"
        logger.warning("update %d is skipped: %s (%s)", update, self._reason(loss, norm), counts)

    def raise_if_diverged(self, update: Update[Any], number: int) -> None:
        """Raise Diverged after ``recovery.skips`` bad updates in a row."""
        if self.in_a_row >= self.config.skips:
            reason = f"{self.in_a_row} bad updates in a row, the last of them {number}"
            raise Diverged(reason, update, number)

    @property
    def lr_scale(self) -> float:
        """Factor of the learning rate, after the returns to a checkpoint."""
        return self.config.lr_factor**self.returned

    def state_dict(self) -> dict[str, Any]:
        """The state; with it, a resumed run makes the same decisions."""
        return {
            "losses": list(self._losses),
            "in_a_row": self.in_a_row,
            "skipped": self.skipped,
            "returned": self.returned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state; the number of returns never decreases."""
        self._losses = deque(state["losses"], maxlen=_WINDOW)
        self.in_a_row = state["in_a_row"]
        self.skipped = max(self.skipped, state["skipped"])
        self.returned = max(self.returned, state["returned"])

    def _usual_loss(self) -> float | None:
        """The median of the last good updates; None if they are too few."""
        return statistics.median(self._losses) if len(self._losses) >= _MIN_LOSSES else None

    def _reason(self, loss: float, norm: float) -> str:
        if not math.isfinite(loss):
            return f"its loss is {loss}"
        if not math.isfinite(norm):
            return f"the norm of its gradient is {norm}"
        return f"its loss is {loss:.2f} where {self._usual_loss():.2f} is usual"


def save_text(divergence: Diverged, folder: Path, rank: int, tokenizer: Tokenizer) -> Path:
    """Write the text of the batches of this rank at a divergence, a line per sentence pair."""
    path = folder / f"diverged-at-{divergence.number}-rank-{rank}.txt"
    decoders = (tokenizer.decode_source, tokenizer.decode_target)
    try:
        with open_unlinked(path, "w", encoding="utf-8") as file:
            for batch in divergence.update.batches:
                # A batch of one text has no second side.
                sides = zip(decoders, batch.text(), strict=False)
                texts = [decode(side.tolist()) for decode, side in sides]
                file.writelines("\t".join(pair) + "\n" for pair in zip(*texts, strict=True))
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error.strerror)
    return path
