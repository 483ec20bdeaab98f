"""The update that all tasks share: a sum of losses, one normaliser, clipping, optimiser, file.

It does not know what a batch holds: a task's module says which hidden states shall predict what.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.optim.lr_scheduler import LambdaLR

from transformer.data.batching.loader import Update
from transformer.model.checkpoint.checkpoint import PORTABLE
from transformer.model.layers.dropout import all_layers
from transformer.model.single_stack import SingleStack
from transformer.model.transformer import Transformer
from transformer.training.checkpointing.restore import restore_progress
from transformer.training.checkpointing.saved_state import optimizer_state, schedule_state
from transformer.training.distributed.fsdp import whole
from transformer.training.losses.config import LossConfig
from transformer.training.losses.cross_entropy import loss_function, negative_log_likelihood
from transformer.training.optimization.activation_checkpointing import recompute_layers
from transformer.training.optimization.divergence import DivergenceDetector, RecoveryConfig
from transformer.training.optimization.gradient_accumulation import (
    Accumulator,
    Totals,
    sum_over_ranks,
)
from transformer.training.optimization.optimizer import OptimizerConfig, build_optimizer
from transformer.training.optimization.schedule import ScheduleConfig, build_schedule
from transformer.training.step.distributed_mean import Means
from transformer.training.step.seeding import seed_for


class UpdateModule(LightningModule, ABC):
    """Trains a model whose hidden states, projected, predict the right tokens.

    What Lightning takes for a batch is a whole update: the micro-batches of a rank. The loss of an
    update is a sum over its predictions divided by their number, counted over all micro-batches
    and all ranks. So each micro-batch gives the gradient of a sum, and their total is divided
    once, before it is clipped.

    Args:
        model: The model to train.
        loss: How the loss is computed.
        optimizer: How the weights are updated.
        schedule: How the learning rate moves.
        recovery: What to do about an update that would do harm.
        clip: Largest norm of the gradient; None does not clip.
        seed: Of what is drawn at random in training.
        portable: What every checkpoint says besides the weights (``checkpoint.portable_part``).
    """

    def __init__(
        self,
        model: Transformer | SingleStack,
        *,
        loss: LossConfig,
        optimizer: OptimizerConfig,
        schedule: ScheduleConfig,
        recovery: RecoveryConfig,
        clip: float | None,
        seed: int,
        portable: dict[str, Any],
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.schedule = schedule
        self.clip = clip
        self.seed = seed
        self.portable = portable
        self.detector = DivergenceDetector(recovery)
        self.means = Means()
        self.accumulate = Accumulator(self._backward, self.zero_grad)

    @abstractmethod
    def predictions(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Hidden states that predict, ``token width``, and what is right, ``token``."""

    def micro_loss(self, batch: Any) -> tuple[Tensor, int, dict[str, Tensor]]:
        """Sum of the loss over the predictions of a micro-batch, their number, and what to log.

        What is logged holds ``loss``, which all normalise by that number.
        """
        hidden, right = self.predictions(batch)
        loss = loss_function(self.loss, hidden, self.model.projection.weight, right)
        return loss, len(right), {"loss": loss.detach()}

    @property
    def sharded(self) -> bool:
        """Whether the ranks share out the weights, and sum gradients as they come."""
        return isinstance(self.model, FSDPModule)

    def recompute_layers(self) -> None:
        """Keep no activations of a layer for the backward pass, but compute them again there."""
        recompute_layers(self.model)

    def training_step(self, update: Update[Any], update_index: int) -> dict[str, Any]:
        """Update the weights once, unless that would do harm.

        Returns:
            The ``sums`` over all ranks of what ``micro_loss`` gives to log, as plain numbers, and
            of its ``tokens``; the ``lr``; and whether the update was ``good``.

        Raises:
            Diverged: Too many updates in a row would have done harm.
        """
        totals = self._over_all_ranks(self.accumulate(update))
        norm = self._normalised(totals.tokens)
        number = self.global_step + 1
        # All that is read of the device is read here, before the optimiser has work there.
        sums: dict[str, Any] = {name: value.tolist() for name, value in totals.sums.items()}
        good = self.detector.is_good(sums["loss"] / totals.tokens, float(norm), number)
        lr = self._stepping().param_groups[0]["lr"]
        if good:
            self._stepping().step()
            self.log("train/grad_norm", norm)
        else:
            self._count_as_done()
            self.detector.raise_if_diverged(update, number)
        self.log("train/skipped", float(self.detector.skipped))
        self._schedule().step()
        self.zero_grad()
        return {"sums": sums, "tokens": totals.tokens, "lr": lr, "good": good}

    def check_memory(self, batch: Any, times: int = 1) -> None:
        """Compute the gradient of a batch and forget it, to know that memory suffices.

        Args:
            batch: The largest.
            times: 2 where an update adds up several, beside whose gradient the next must fit.

        Raises:
            InputError: It does not suffice for one row.
        """
        with all_layers(self.model):
            self.accumulate(Update.of([batch] * times, [0] * times))
        self.zero_grad()

    def validation_step(self, batch: Any | None, batch_index: int) -> None:
        """Count a batch; there may be none for this rank."""
        if batch is not None:
            self.validate(*self.predictions(batch))

    def validate(self, hidden: Tensor, right: Tensor) -> None:
        """Count for ``val/loss`` the negative log-likelihood of the predictions, in nats."""
        nll = negative_log_likelihood(hidden, self.model.projection.weight, right)
        self.means.add("val/loss", nll, len(right))

    def on_validation_epoch_end(self) -> None:
        """Log the means over the predictions of all ranks."""
        self.log_dict(self.validated(self.means.over_all_ranks()))

    def validated(self, means: dict[str, float]) -> dict[str, float]:
        """What to log of a validation, given the means over all its predictions."""
        return means

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser, and the schedule stepped once an update."""
        optimizer = build_optimizer(self.optimizer, self.model.parameters())
        scheduler = build_schedule(self.schedule, optimizer, self.model.config.d_model)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def on_fit_start(self) -> None:
        """See who computes together, which the rehearsal already has to know."""
        self.accumulate.alone = not self.sharded

    def on_train_start(self) -> None:
        """Let the config have the last word on what a checkpoint has brought back."""
        lr = self.optimizer.lr * self.detector.lr_scale
        schedule = self._schedule()
        schedule.base_lrs = [lr for _ in schedule.base_lrs]
        groups = self._stepping().param_groups
        for group, decay in zip(groups, (self.optimizer.weight_decay, 0.0), strict=True):
            group |= {"betas": self.optimizer.betas, "eps": self.optimizer.eps}
            group |= {"weight_decay": decay, "initial_lr": lr}
            group["decoupled_weight_decay"] = self.optimizer.name == "adamw"
            group["lr"] = lr * schedule.lr_lambdas[0](self.global_step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the file complete: it needs no other."""
        checkpoint[PORTABLE] = self.portable
        checkpoint["recovery"] = self.detector.state_dict() | {"lr": self.optimizer.lr}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Stand where the run before stood, and judge on as it did.

        Raises:
            InputError: Weights or moments do not fit the model of the config.
        """
        restore_progress(checkpoint, self.trainer, self)
        before = checkpoint["recovery"]
        if before["lr"] != self.optimizer.lr:
            # The user has chosen another, as the last message of a run that diverged advises.
            before = before | {"returned": 0}
        self.detector.load_state_dict(before)
        begun: Any = self.configure_optimizers()
        moments = optimizer_state(checkpoint["optimizer_states"], begun["optimizer"])
        schedule = begun["lr_scheduler"]["scheduler"]
        rates = schedule_state(schedule, checkpoint["global_step"], self.detector.lr_scale)
        checkpoint |= {"optimizer_states": [moments], "lr_schedulers": [rates]}

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Leave the update out if training is to stop before it (stopping.py)."""
        return -1 if self.trainer.should_stop else None

    def _backward(self, batch: Any, path: tuple[int, ...]) -> tuple[int, dict[str, Tensor]]:
        seed_for(self.seed, *path)
        loss, tokens, sums = self.micro_loss(batch)
        self.manual_backward(loss)
        return tokens, sums

    def _over_all_ranks(self, totals: Totals) -> Totals:
        """Sum the gradients, and what is counted, over the ranks."""
        if self.trainer.world_size == 1:
            return totals
        if not self.sharded:
            sum_over_ranks(self.model.parameters())
        names = sorted(totals.sums)
        counted = [torch.tensor([float(totals.tokens)], device=self.device, dtype=torch.float64)]
        flat = torch.cat(counted + [totals.sums[name].double().flatten() for name in names])
        torch.distributed.all_reduce(flat)
        tokens, *values = flat.split([1, *(totals.sums[name].numel() for name in names)])
        shaped = (v.view(totals.sums[n].shape) for n, v in zip(names, values, strict=True))
        return Totals(int(tokens.item()), dict(zip(names, shaped, strict=True)))

    def _normalised(self, tokens: int) -> Tensor:
        """Turn the gradient of the sum into that of the mean, clip it, and return its norm."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, 1 / tokens)
        return whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip or math.inf))

    def _count_as_done(self) -> None:
        """Let the update have its number: which batches come next follows from it."""
        done = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        done.increment_ready()
        done.increment_completed()

    def _stepping(self) -> LightningOptimizer:
        optimizer = self.optimizers()
        assert isinstance(optimizer, LightningOptimizer)
        return optimizer

    def _schedule(self) -> LambdaLR:
        schedule = self.lr_schedulers()
        assert isinstance(schedule, LambdaLR)
        return schedule
