"""The update of all tasks: a sum of losses, one normalizer, clipping, optimizer."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytorch_lightning import LightningModule
from pytorch_lightning.strategies import (
    DDPStrategy,
    ModelParallelStrategy,
    SingleDeviceStrategy,
)
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from transformer.checkpoint.checkpoint import PORTABLE, Portable
from transformer.common.errors import InputError
from transformer.data.batching.loader import Update
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.layers.dropout import all_layers
from transformer.model.transformer import Transformer
from transformer.settings.run import RunConfig
from transformer.training import checkpointing
from transformer.training.losses.cross_entropy import (
    joined_bias,
    loss_function,
    negative_log_likelihood,
)
from transformer.training.optimization.compile_choice import compile_choice
from transformer.training.optimization.divergence import DivergenceDetector
from transformer.training.optimization.optimizer import build_optimizer
from transformer.training.optimization.schedule import build_schedule
from transformer.training.step.gradient_accumulation import Accumulator, seed_for
from transformer.training.step.gradient_clipping import clip_mean_gradient, mean_gradient_scale
from transformer.training.step.outcome import Means, Outcome, sum_over_ranks

if TYPE_CHECKING:
    from transformer.model.single_stack import SingleStack


class UpdateModule(LightningModule, ABC):
    """Trains a model that predicts tokens from projected hidden states.

    A Lightning batch is a whole update: the micro-batches of a rank. The loss is summed over the
    predictions. It is divided once, before clipping, by the number of predictions over all
    micro-batches and ranks. Lightning's automatic optimization would compute the gradient of each
    micro-batch after ``training_step``, where a batch that is too large cannot be halved.
    ``portable`` is stored with the weights. ``signal`` asks this rank to stop; ``agreed_signal`` is
    the signal of all ranks.
    """

    def __init__(
        self,
        config: RunConfig,
        tokenizer: Tokenizer,
        *,
        model: "Transformer | SingleStack | None" = None,
    ) -> None:
        """Build the model of a config, unless a ``model`` is given, and prepare its layers.

        Raises InputError if the config does not fit the tokenizer, or cannot be compiled here.
        """
        super().__init__()
        self.automatic_optimization = False
        self.model = self.build_model(config, tokenizer) if model is None else model
        self.config = replace(config, model=self.model.config)
        self.portable = Portable(self.config, tokenizer.to_state())
        self.tokenizer = tokenizer
        self.means = Means()
        self.accumulate = Accumulator(self._backward, self.zero_grad)
        self.signal: int | None = None
        self.agreed_signal: int | None = None
        self._detector = DivergenceDetector(config.recovery)
        self._enqueued: tuple[Outcome, Update[Any]] | None = None
        if self.model.config.freeze or self.model.config.lora_rank:
            from transformer.training.optimization.freezing import freeze

            freeze(self.model, self.model.config)
        if config.gradient_checkpointing:
            from transformer.training.optimization.activation_checkpointing import recompute_layers

            recompute_layers(self.model, self.guided_attention)
        compiled = compile_choice(config).parts
        self.compiled = compiled != "none"
        if compiled == "layers":
            from transformer.training.optimization.compiled_layers import compile_layers

            compile_layers(self.model, self.guided_attention)

    @classmethod
    @abstractmethod
    def build_model(cls, config: RunConfig, tokenizer: Tokenizer) -> "Transformer | SingleStack":
        """A new model, with the sizes of the vocabularies."""

    @abstractmethod
    def predictions(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Hidden states of the predictions, ``token width``, and the right tokens, ``token``."""

    def micro_loss(self, batch: Any) -> tuple[Tensor, int, dict[str, Tensor]]:
        """Sum of the loss over the predictions of a micro-batch, their number, and sums to log."""
        hidden, right = self.predictions(batch)
        hidden, weight = joined_bias(hidden, self.model.projection)
        loss = loss_function(self.config.loss, hidden, weight, right, compiled=self.compiled)
        return loss, len(right), {"loss": loss.detach()}

    @property
    def sharded(self) -> bool:
        """Whether the weights are sharded over the ranks, and gradients summed after each part."""
        return isinstance(self.model, FSDPModule)

    @property
    def guided_attention(self) -> nn.Module | None:
        """The attention whose weights the loss reads; None if it reads none."""
        return None

    def training_step(self, update: Update[Any], update_index: int) -> dict[str, Any]:
        """Update the weights once, unless the update is bad.

        Returns the mean ``loss`` per prediction over all ranks, and the ``outcome``.
        """
        totals = self.accumulate(update, self._no_sync)
        ranks = self.trainer.world_size
        if ranks > 1:
            totals = sum_over_ranks(totals, self.signal, self.device)
        # DistributedDataParallel has divided the sum over the ranks by their number.
        divided = ranks if isinstance(self.trainer.model, DistributedDataParallel) else 1
        optimizer: Any = self.optimizers()
        norm = self.normalize(totals.tokens / divided, optimizer.optimizer)
        loss = totals.sums["loss"] / totals.tokens
        good = self.detector.accepts(loss, norm)
        lr = optimizer.param_groups[0]["lr"]
        # Adam does not change the weights if this is 1.
        optimizer.optimizer.found_inf = good.logical_not().float()
        optimizer.step()
        schedule: Any = self.lr_schedulers()
        schedule.step()
        self.zero_grad()
        outcome = Outcome(good, norm, totals, lr, self.global_step)
        self._enqueued = outcome, update
        if self.device.type == "cpu":
            self.count_last_update()
        return {"loss": loss, "outcome": outcome}

    def normalize(self, tokens: float | Tensor, adam: Optimizer) -> Tensor:
        """Make the gradient a mean and clip it, or let Adam do so; return the unclipped norm."""
        clip = self.config.trainer.gradient_clip_val
        if self.sharded or self.model.projection.weight.device.type in ("cpu", "mps"):
            return clip_mean_gradient(self.model, tokens, clip, sharded=self.sharded)
        norm, scale = mean_gradient_scale(self.model, tokens, clip)
        adam.grad_scale = scale  # type: ignore[attr-defined]
        return norm

    @property
    def detector(self) -> DivergenceDetector:
        """The detector, after it has counted every update; reading it may raise Diverged."""
        self.count_last_update()
        return self._detector

    def count_last_update(self) -> None:
        """Let the detector count the last update, whose outcome is read; it may raise Diverged."""
        if self._enqueued is None:
            return
        (outcome, update), self._enqueued = self._enqueued, None
        numbers = outcome.numbers
        self.agreed_signal = numbers.signal
        self._detector.count(numbers.good, numbers.loss, numbers.norm, outcome.number)
        self._detector.raise_if_diverged(update, outcome.number)

    def check_memory(self, batch: Any, times: int = 1) -> None:
        """Compute and drop the gradient of the largest batch, as often as an update adds up."""
        with all_layers(self.model), self._no_sync():
            self.accumulate(Update.of([batch] * times, [0] * times))
        self.zero_grad()

    def validation_step(self, batch: Any | None, batch_index: int) -> None:
        if batch is not None:
            self.validate(*self.predictions(batch))

    def validate(self, hidden: Tensor, right: Tensor) -> None:
        """Count for ``val/loss`` the negative log-likelihood of the predictions, in nats."""
        nll = negative_log_likelihood(*joined_bias(hidden, self.model.projection), right)
        self.means.add("val/loss", nll, len(right))

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.validated(self.means.over_all_ranks()))

    def validated(self, means: dict[str, float]) -> dict[str, float]:
        return means

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = build_optimizer(self.config.optimizer, self.model.parameters())
        config = self.config.schedule_to_the_end
        if config.total == -1:
            config = replace(config, total=self.trainer.max_steps)
        schedule = build_schedule(config, optimizer, self.model.config.d_model)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_model(self) -> None:
        """Shard the model, if the strategy has a mesh of ranks (FSDP)."""
        if self.device_mesh is not None:
            from transformer.training.distributed.fsdp import shard

            shard(self.model, self.device_mesh["data_parallel"], self.trainer.precision)

    def setup(self, stage: str) -> None:
        """Raise InputError if a trainer of the user computes other gradients than this module."""
        strategy: object = self.trainer.strategy
        precision = str(self.trainer.precision)
        known = isinstance(strategy, SingleDeviceStrategy | DDPStrategy)
        if isinstance(strategy, ModelParallelStrategy):
            # Lightning's gathers no weights for a validation, in which its ranks would wait.
            from transformer.training.distributed.fsdp import ShardedStrategy

            known = isinstance(strategy, ShardedStrategy)
        if not known:
            raise InputError(
                f"{type(strategy).__name__} is not supported; take strategy=auto or ddp, or shard "
                "the weights by train() with trainer.strategy=fsdp"
            )
        if precision not in ("32-true", "bf16-mixed"):
            raise InputError(f"precision={precision} is not supported; take 32-true or bf16-mixed")

    def on_fit_start(self) -> None:
        """Set whether the process may halve a batch; the memory check needs it already."""
        self.accumulate.halving.alone = self.trainer.world_size == 1

    def _no_sync(self) -> AbstractContextManager[Any]:
        """A block in which DistributedDataParallel sends no gradients."""
        wrapped = self.trainer.model
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add config, tokenizer and detector, so that the file needs no other file."""
        checkpoint[PORTABLE] = self.portable.to_plain()
        checkpoint["recovery"] = self.detector.state_dict() | {"lr": self.config.optimizer.lr}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore training and the detector; InputError if weights or moments do not fit.

        A validation alone takes nothing but the weights.
        """
        if self.trainer.state.fn != TrainerFn.FITTING:
            return
        checkpointing.restore_progress(checkpoint, self.trainer, self)
        saved = checkpoint["recovery"]
        if saved["lr"] != self.config.optimizer.lr:
            # The user has set another, as the last message of a diverged run advises.
            saved = saved | {"returned": 0}
        self.detector.load_state_dict(saved)
        new: Any = self.configure_optimizers()
        schedule, scale = new["lr_scheduler"]["scheduler"], self.detector.lr_scale
        rates = checkpointing.schedule_state(schedule, checkpoint["global_step"], scale)
        states, optimizer = checkpoint["optimizer_states"], new["optimizer"]
        # A rank with sharded weights takes its part of the moments.
        moments = checkpointing.optimizer_state(states, optimizer, copies=not self.sharded)
        for index, group in enumerate(moments["param_groups"]):
            group |= {"initial_lr": rates["base_lrs"][index], "lr": rates["_last_lr"][index]}
        checkpoint |= {"optimizer_states": [moments], "lr_schedulers": [rates]}

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Skip the update if training stops before it (graceful_shutdown.py)."""
        return -1 if self.trainer.should_stop else None

    def _backward(self, batch: Any, path: tuple[int, ...]) -> tuple[int, dict[str, Tensor]]:
        seed_for(self.config.seed, *path)
        loss, tokens, sums = self.micro_loss(batch)
        self.manual_backward(loss)
        return tokens, sums
