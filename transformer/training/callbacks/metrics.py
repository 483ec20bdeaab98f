"""Metrics of training, and a validation after the last update; no callback changes the weights."""

import math
import time
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.errors import InputError
from transformer.training.callbacks.progress import time_to_log
from transformer.training.lightning_internals import validate_now
from transformer.training.update import Outcome

_SAVED = ("loss", "alignment", "consistency", "learned", "other_sums")
"""Attributes of ``Measure`` that are in the checkpoint."""
_NAMED = {"loss", "alignment", "consistency"}
"""Sums of our losses."""
_TAKEN = {"alignment_loss", "grad_norm", "padding", "skipped", "tokens_per_second"}
"""Other names of the log."""


class Measure(Callback):
    """Logs loss, speed, padding, norm and learning rate since the last log, over all ranks.

    ``train/loss`` is the smoothed loss per target token, in nats, without skipped updates.
    ``train/tokens_per_second`` counts real target tokens, without the time of validations.
    ``train/alignment_loss`` is per linked target token. ``train/consistency`` is the unweighted
    divergence of two passes, per target token. Other sums of ``UpdateModule.micro_loss`` are
    ``train/NAME`` per target token, or of two numbers the first divided by the second.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._unread: list[Outcome] = []
        self._restart()

    def _restart(self) -> None:
        self.loss = 0.0
        self.alignment = [0.0, 0.0]
        """Alignment loss, and number of linked tokens."""
        self.consistency: float | None = None
        self.other_sums: dict[str, tuple[float, float]] = {}
        """Each other sum, and what it is divided by."""
        self.learned = 0
        """Target tokens of good updates."""
        self.target = 0
        """Target tokens of all updates."""
        self.real = 0
        """Tokens of both sides without padding, on this rank."""
        self.padded = 0
        self.seconds = 0.0

    def on_train_batch_start(self, trainer: Trainer, *_: object) -> None:
        if self.since is None:
            self.since = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._take_time()
        self.since = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._unread.append(outputs["outcome"])
        self.real += batch.tokens
        self.padded += batch.positions
        if time_to_log(trainer) and self.since is not None:
            last = self._unread[-1]
            self._read()
            self._take_time()
            module: Any = pl_module
            norm = {"train/grad_norm": last.numbers.norm} if last.numbers.good else {}
            skipped = {"train/skipped": float(module.detector.skipped)}
            pl_module.log_dict({**norm, **skipped, **self._values(trainer, last.lr)})
            self._restart()

    def _read(self) -> None:
        """Add up the outcomes since the last read; only here does the host wait for a GPU."""
        for outcome in self._unread:
            numbers = outcome.numbers
            self.target += numbers.tokens
            if not numbers.good:
                continue
            self.learned += numbers.tokens
            self.loss += numbers.sums["loss"]
            if "alignment" in numbers.sums:
                summed, linked = numbers.sums["alignment"]
                self.alignment = [self.alignment[0] + summed, self.alignment[1] + linked]
            if "consistency" in numbers.sums:
                self.consistency = (self.consistency or 0.0) + numbers.sums["consistency"]
            for name in numbers.sums.keys() - _NAMED:
                self._add(name, numbers.sums[name], numbers.tokens)
        self._unread.clear()

    def _add(self, name: str, value: float | list[float], tokens: int) -> None:
        """Add a sum of a loss of the user."""
        if name in _TAKEN:
            raise InputError(f"micro_loss: the log has its own {name}; give the sum another name")
        parts = value if isinstance(value, list) else [value, tokens]
        if len(parts) != 2:
            raise InputError(f"micro_loss: {name} has {len(parts)} numbers; give one, or two")
        summed, divisor = self.other_sums.get(name, (0.0, 0.0))
        self.other_sums[name] = (summed + parts[0], divisor + parts[1])

    def _take_time(self) -> None:
        if self.since is not None:
            now = time.perf_counter()
            self.seconds += now - self.since
            self.since = now

    def on_save_checkpoint(self, trainer: Trainer, _: object, checkpoint: dict[str, Any]) -> None:
        """Save the sums for the next log of a resumed run, without the time."""
        self._read()
        sums = {name: getattr(self, name) for name in _SAVED}
        checkpoint["measured"] = {**sums, "counted": self._counted(trainer)}

    def on_load_checkpoint(self, trainer: Trainer, _: object, checkpoint: dict[str, Any]) -> None:
        before = checkpoint["measured"]
        # Checkpoints of earlier versions have no other sums.
        for name in _SAVED if "other_sums" in before else _SAVED[:-1]:
            setattr(self, name, before[name])
        if trainer.is_global_zero:
            self.real, self.padded = before["counted"]

    def _counted(self, trainer: Trainer) -> list[int]:
        device = trainer.strategy.root_device
        counted = torch.tensor([self.real, self.padded], dtype=torch.int64, device=device)
        summed = trainer.strategy.reduce(counted, reduce_op="sum")
        return [int(count) for count in summed.tolist()]

    def _values(self, trainer: Trainer, lr: float) -> dict[str, float]:
        real, padded = self._counted(trainer)
        values = {
            "train/loss": self.loss / self.learned if self.learned else math.nan,
            "train/tokens_per_second": self.target / self.seconds,
            "train/padding": 1 - real / padded,
            "lr": lr,
        }
        summed, linked = self.alignment
        if linked:
            values["train/alignment_loss"] = summed / linked
        if self.consistency is not None:
            values["train/consistency"] = self.consistency / max(1, self.learned)
        for name, (summed, divisor) in sorted(self.other_sums.items()):
            if divisor:
                values[f"train/{name}"] = summed / divisor
        return values


class LastValidation(Callback):
    """Adds a validation after the last update, so that its weights can be the best."""

    def __init__(self) -> None:
        self._validated = -1

    def on_validation_end(self, trainer: Trainer, *_: object) -> None:
        self._validated = trainer.global_step

    def on_train_epoch_end(self, trainer: Trainer, *_: object) -> None:
        """Validate, unless the last update was at the interval."""
        done = trainer.global_step
        if 0 <= trainer.max_steps <= done and self._validated != done:
            validate_now(trainer)
