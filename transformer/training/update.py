"""One update: accumulate, sum over ranks, clip, check, step, and report the outcome.

``UpdateModule.training_step`` is the update; what it calls is below it, in the order in which it
happens. The losses are in ``losses/``, optimizer and schedule in ``optimization.py``, the detector
of bad updates in ``divergence.py``. Nothing here knows the task.
"""

import gc
import logging
import math
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
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
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from transformer.checkpoint.checkpoint import PORTABLE, Portable
from transformer.common.errors import InputError, is_out_of_memory
from transformer.common.processes import SIGNALS
from transformer.data.batching.batch import ShapedBatch
from transformer.data.batching.loader import Update
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.layers.layer_drop import all_layers
from transformer.model.transformer import Transformer
from transformer.settings.run import RunConfig, completed
from transformer.settings.tokenizer import PAD
from transformer.training import checkpointing
from transformer.training.cuda_graphs import Backward, graphed_backward
from transformer.training.divergence import DivergenceDetector
from transformer.training.layer_wrappers import compile_choice, compile_layers, recompute_layers
from transformer.training.losses.cross_entropy import (
    NO_TOKEN,
    joined_bias,
    loss_function,
    negative_log_likelihood,
)
from transformer.training.optimization import build_optimizer, build_schedule, freeze

if TYPE_CHECKING:
    from transformer.model.single_stack import SingleStack

logger = logging.getLogger(__name__)


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
        config = completed(config)
        self.automatic_optimization = False
        self.model = self.build_model(config, tokenizer) if model is None else model
        self.config = replace(config, model=self.model.config)
        self.portable = Portable(self.config, tokenizer.to_state())
        self.tokenizer = tokenizer
        self.means = Means()
        self.accumulate = Accumulator(self._backward, self.zero_grad)
        self.backward_of: Backward = self._backward_as_it_is
        self.signal: int | None = None
        self.agreed_signal: int | None = None
        self._detector = DivergenceDetector(config.recovery)
        self._unread: tuple[Outcome, Update[Any]] | None = None
        if self.model.config.freeze or self.model.config.lora_rank:
            freeze(self.model, self.model.config)
        if config.gradient_checkpointing:
            recompute_layers(self.model, self.guided_attention)
        compiled_parts = compile_choice(config).parts
        self.compiled = compiled_parts != "none"
        if compiled_parts == "layers":
            compile_layers(self.model, self.guided_attention)

    @classmethod
    @abstractmethod
    def build_model(cls, config: RunConfig, tokenizer: Tokenizer) -> "Transformer | SingleStack":
        """A new model, with the sizes of the vocabularies."""

    @abstractmethod
    def predictions(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Hidden states of the predictions, ``token width``, and their targets, ``token``."""

    def training_step(self, update: Update[Any], update_index: int) -> dict[str, Any]:
        """Update the weights once, unless the update is bad.

        Returns the mean ``loss`` per prediction over all ranks, and the ``outcome``.
        """
        try:
            return self._update(update)
        except BaseException:
            # Lightning calls no hook of a module then.
            self._drop_graphs()
            raise

    def _update(self, update: Update[Any]) -> dict[str, Any]:
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
        # The optimizer does not change the weights if this is 1.
        optimizer.optimizer.found_inf = good.logical_not().float()
        optimizer.step()
        schedule: Any = self.lr_schedulers()
        schedule.step()
        self.zero_grad()
        outcome = Outcome(good, norm, totals, lr, self.global_step)
        self._unread = outcome, update
        if self.device.type == "cpu":
            self.count_last_update()
        return {"loss": loss, "outcome": outcome}

    def _backward(self, batch: Any, path: tuple[int, ...]) -> tuple[int, dict[str, Tensor]]:
        """Add the gradient of a micro-batch; returns its predictions and the sums to log."""
        seed_for(self.config.seed, *path)
        return self.backward_of(batch)

    def _backward_as_it_is(self, batch: Any) -> tuple[int, dict[str, Tensor]]:
        loss, tokens, sums = self.micro_loss(batch)
        self.manual_backward(loss)
        return tokens, sums

    def micro_loss(self, batch: Any) -> tuple[Tensor, int, dict[str, Tensor]]:
        """Sum of the loss over the predictions of a micro-batch, their number, and sums to log.

        A sum is a tensor of one number, or of two whose quotient is logged (``Measure``).
        """
        hidden, target = self.predictions(batch)
        hidden, weight = joined_bias(hidden, self.model.projection)
        tokens = len(target)
        ignored = NO_TOKEN
        if isinstance(batch, ShapedBatch):
            tokens = batch.target_tokens
            ignored = PAD
        loss = loss_function(
            self.config.loss, hidden, weight, target, compiled=self.compiled, ignored=ignored
        )
        return loss, tokens, {"loss": loss.detach()}

    def normalize(self, tokens: float | Tensor, optimizer: Optimizer) -> Tensor:
        """Make the gradient a mean and clip it, or let the optimizer; return the unclipped norm."""
        max_norm = self.config.trainer.gradient_clip_val
        if self.sharded or self.model.projection.weight.device.type in ("cpu", "mps"):
            return clip_mean_gradient(self.model, tokens, max_norm, sharded=self.sharded)
        norm, scale = mean_gradient_scale(self.model, tokens, max_norm)
        optimizer.grad_scale = scale  # type: ignore[attr-defined]
        return norm

    @property
    def detector(self) -> DivergenceDetector:
        """The detector, after it has counted every update; reading it may raise Diverged."""
        self.count_last_update()
        return self._detector

    def count_last_update(self) -> None:
        """Let the detector count the last update, whose outcome is read; it may raise Diverged."""
        if self._unread is None:
            return
        outcome, update = self._unread
        self._unread = None
        numbers = outcome.numbers
        self.agreed_signal = numbers.signal
        self._detector.count(numbers.good, numbers.loss, numbers.norm, outcome.number)
        self._detector.raise_if_diverged(update, outcome.number)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = build_optimizer(self.config.optimizer, self.model)
        # The trainer knows whether max_steps or max_epochs ends the run first. A plain one of
        # Lightning has -1 if it has max_epochs alone.
        last = self.trainer.max_steps
        if last < 0:
            last = self.config.trainer.max_steps
        config = self.config.schedule.ending_at(last)
        schedule = build_schedule(config, optimizer, self.model.config.d_model)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

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

    def configure_model(self) -> None:
        """Shard the model, if the strategy has a mesh of ranks (FSDP)."""
        if self.device_mesh is not None:
            from transformer.training.distributed.fsdp import shard

            shard(self.model, self.device_mesh["data_parallel"], self.trainer.precision)

    def on_fit_start(self) -> None:
        """Prepare the backward passes, which the memory check needs already.

        Only a process that is alone may halve a batch.
        """
        processes = self.trainer.world_size
        self.accumulate.alone = processes == 1
        device = self.trainer.strategy.root_device
        self.backward_of = graphed_backward(
            self._backward_as_it_is, self.model, self.config, device, processes
        )

    def on_fit_end(self) -> None:
        self._drop_graphs()

    def _drop_graphs(self) -> None:
        """Free the memory of graphs; `on_fit_start` makes new ones."""
        self.backward_of = self._backward_as_it_is

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Skip the update if training stops before it (graceful_shutdown.py)."""
        return -1 if self.trainer.should_stop else None

    def check_memory(self, batch: Any, times: int = 1) -> None:
        """Compute and drop the gradient of the largest batch, as often as an update adds up."""
        with all_layers(self.model), self._no_sync():
            self.accumulate(Update.of([batch] * times, [0] * times))
        self.zero_grad()

    @property
    def sharded(self) -> bool:
        """Whether the weights are sharded over the ranks, and gradients summed after each part."""
        return isinstance(self.model, FSDPModule)

    @property
    def guided_attention(self) -> nn.Module | None:
        """The attention whose weights the loss reads; None if it reads none."""
        return None

    def _no_sync(self) -> AbstractContextManager[Any]:
        """A block in which DistributedDataParallel sends no gradients."""
        wrapped = self.trainer.model
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    def validation_step(self, batch: Any | None, batch_index: int) -> None:
        if batch is not None:
            self.validate(*self.predictions(batch))

    def validate(self, hidden: Tensor, target: Tensor) -> None:
        """Count for ``val/loss`` the negative log-likelihood of the predictions, in nats."""
        nll = negative_log_likelihood(*joined_bias(hidden, self.model.projection), target)
        self.means.add("val/loss", nll, len(target))

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.validated(self.means.over_all_ranks()))

    def validated(self, means: dict[str, float]) -> dict[str, float]:
        """The values to log of a validation, from its means."""
        return means

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
        schedule = new["lr_scheduler"]["scheduler"]
        rates = checkpointing.schedule_state(
            schedule, checkpoint["global_step"], self.detector.lr_scale
        )
        # A rank with sharded weights takes its part of the moments.
        moments = checkpointing.optimizer_state(
            checkpoint["optimizer_states"], new["optimizer"], copies=not self.sharded
        )
        for index, group in enumerate(moments["param_groups"]):
            group["initial_lr"] = rates["base_lrs"][index]
            group["lr"] = rates["_last_lr"][index]
        checkpoint["optimizer_states"] = [moments]
        checkpoint["lr_schedulers"] = [rates]


# Accumulation.

Path = tuple[int, ...]
"""The number of a micro-batch in the run, and the indices of its half, quarter, …"""

NoSync = Callable[[], AbstractContextManager[Any]]
"""Opens a block whose backward passes sum no gradients over the ranks."""


@dataclass
class Totals:
    """Sums of an update; ``tokens`` of several ranks are a tensor, ``signals`` count ranks."""

    tokens: int | Tensor = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    signals: Tensor | None = None

    def add(self, tokens: int, sums: Mapping[str, Tensor]) -> None:
        """Add the predictions of a micro-batch, and its sums to log."""
        self.tokens += tokens
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value


class Accumulator:
    """Adds up the gradients of the micro-batches of an update.

    ``backward`` adds the gradient of one micro-batch, with random numbers that depend on its path,
    and returns its number of tokens and the sums to log. ``clear`` deletes all gradients.

    If memory runs out and the process is ``alone``, the update starts again, and batches of more
    than ``max_positions`` are halved from then on: the gradient is the same. One of several ranks
    cannot, because the others wait for it.
    """

    def __init__(
        self,
        backward: Callable[[Any, Path], tuple[int, dict[str, Tensor]]],
        clear: Callable[[], None],
    ) -> None:
        self.backward = backward
        self.clear = clear
        self.alone = True
        self.max_positions = math.inf

    def __call__(self, update: Update[Any], no_sync: NoSync = nullcontext) -> Totals:
        """Add the gradient of an update; all backward passes but the last run in ``no_sync``.

        Raises InputError if memory runs out and no batch can be halved.
        """
        while True:
            self.clear()
            totals = Totals()
            too_large = self._first_too_large(update, totals, no_sync)
            if too_large is None:
                return totals
            self.clear()
            self._halve_from_now_on(too_large)

    def _first_too_large(self, update: Update[Any], totals: Totals, no_sync: NoSync) -> Any | None:
        """Add up the parts of an update, up to the first that runs out of memory; None: all."""
        parts: list[tuple[Any, Path]] = []
        for batch, number in zip(update.batches, update.numbers, strict=True):
            parts += self._parts(batch, (number,))
        for index, (batch, path) in enumerate(parts, 1):
            block = nullcontext if index == len(parts) else no_sync
            if runs_out_of_memory(partial(self._add, totals, batch, path, block)):
                return batch
        return None

    def _add(self, totals: Totals, batch: Any, path: Path, block: NoSync) -> None:
        with block():
            tokens, sums = self.backward(batch, path)
        totals.add(tokens, sums)

    def _parts(self, batch: Any, path: Path) -> Iterator[tuple[Any, Path]]:
        """The batch, or its parts that are small enough, each with its path."""
        if batch.positions <= self.max_positions or batch.size == 1:
            yield batch, path
            return
        for index, half in enumerate(batch.halves()):
            yield from self._parts(half, (*path, index))

    def _halve_from_now_on(self, batch: Any) -> None:
        """Halve batches as large as this one; raises InputError if this one cannot be halved."""
        free_memory()
        pairs = "a single pair" if batch.size == 1 else f"{batch.size} pairs"
        size = f"{pairs}, {batch.positions:,} tokens of both sides with padding"
        if not self.alone or batch.size == 1:
            reason = "" if self.alone else ", and one of several ranks cannot halve its batch"
            raise InputError(
                f"the device runs out of memory with {size}{reason}; set data.batch_tokens or "
                "data.max_length lower, or gradient_checkpointing=true, or take a smaller model"
            )
        self.max_positions = batch.positions - 1
        logger.warning(
            "out of memory with %s: such batches are halved from now on, with the same gradient; a "
            "lower data.batch_tokens saves the time",
            size,
        )


def seed_for(seed: int, *path: int) -> None:
    """Seed all generators for a micro-batch, so that resuming or repeating draws the same."""
    sequence = np.random.SeedSequence([seed, len(path), *path])
    number = int(sequence.generate_state(1, np.uint64)[0])
    torch.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)


def runs_out_of_memory(compute: Callable[[], object]) -> bool:
    """Whether a computation runs out of memory; then its traceback and activations are gone."""
    try:
        compute()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return True
    return False


def free_memory() -> None:
    """Return unused memory to the device."""
    gc.collect()
    torch.cuda.empty_cache()


# The sum over the ranks.


class FlatTensors:
    """Named tensors in one flat tensor, ``flat``, which one copy or one sum over ranks moves."""

    def __init__(self, *groups: Mapping[str, Tensor]) -> None:
        self._shapes = [{name: value.shape for name, value in group.items()} for group in groups]
        values = [value for group in groups for value in group.values()]
        self.flat = torch.cat([value.detach().flatten() for value in values])

    def unpack(self) -> list[dict[str, Tensor]]:
        """The groups, whose tensors are views of ``flat``."""
        sizes = [shape.numel() for group in self._shapes for shape in group.values()]
        parts = iter(self.flat.split(sizes))
        return [
            {name: next(parts).view(shape) for name, shape in group.items()}
            for group in self._shapes
        ]


def sum_over_ranks(totals: Totals, signal: int | None, device: torch.device) -> Totals:
    """Sum the totals of an update over the ranks, and collect the signals, by one message."""
    counts = FlatTensors(
        {
            "tokens": torch.tensor(totals.tokens, dtype=torch.float64),
            "signals": torch.tensor([signal == known for known in SIGNALS], dtype=torch.float64),
        }
    )
    counts.flat = counts.flat.to(device, non_blocking=True)
    # The ranks may have met the sums in another order.
    packed = FlatTensors(*counts.unpack(), dict(sorted(totals.sums.items())))
    dist.all_reduce(packed.flat)
    summed_counts, sums = packed.unpack()
    return Totals(summed_counts["tokens"], sums, summed_counts["signals"])


# The gradient of a sum becomes that of a mean, and is clipped.


def clip_mean_gradient(
    model: nn.Module, tokens: float | Tensor, max_norm: float | None, *, sharded: bool
) -> Tensor:
    """Average and clip (Pascanu et al. 2013, 3.2); returns the norm before clipping."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    gradients = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
    scale = (1 / tokens).float() if isinstance(tokens, Tensor) else 1 / tokens
    torch._foreach_mul_(gradients, scale)
    # Without foreach, sharded weights are clipped one by one.
    norm = nn.utils.clip_grad_norm_(
        model.parameters(), max_norm or math.inf, foreach=sharded or None
    )
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def mean_gradient_scale(
    model: nn.Module, tokens: float | Tensor, max_norm: float | None
) -> tuple[Tensor, Tensor]:
    """The norm of the mean gradient, and the divisor with which a fused optimizer reads it."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = (nn.utils.get_total_norm(gradients) / tokens).float()
    # As clip_grad_norm_ does.
    excess = ((norm + 1e-6) / (max_norm or math.inf)).clamp(min=1.0)
    return norm, (excess * tokens).float()


# The outcome, which the host reads later.


class UpdateNumbers(NamedTuple):
    """The outcome of an update on the host, over all ranks."""

    good: bool
    """Whether the update was applied."""
    norm: float
    """Norm of the gradient before clipping."""
    tokens: int
    loss: float
    """Loss per prediction, in nats."""
    signal: int | None
    """The last signal of ``SIGNALS`` that any of several ranks has received."""
    sums: dict[str, Any]
    """Plain numbers and lists to log, by name."""


class Outcome:
    """Numbers of update ``number``, from 1, on the device; a copy to the host starts at once."""

    def __init__(self, good: Tensor, norm: Tensor, totals: Totals, lr: float, number: int) -> None:
        self.applied = good
        self.lr = lr
        self.number = number
        self._tokens = totals.tokens
        counts = {"good": good, "norm": norm}
        if isinstance(totals.tokens, Tensor) and totals.signals is not None:
            counts["tokens"] = totals.tokens
            counts["signals"] = totals.signals
        self._packed = FlatTensors(counts, totals.sums)
        self._copied: torch.cuda.Event | None = None
        if self._packed.flat.is_cuda:
            self._packed.flat = self._packed.flat.to("cpu", non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    @cached_property
    def numbers(self) -> UpdateNumbers:
        """The numbers on the host: the only read of the device in an update."""
        if self._copied is not None:
            self._copied.synchronize()
        self._packed.flat = self._packed.flat.cpu()
        counts, sums = self._packed.unpack()
        tokens = int(counts.get("tokens", self._tokens))
        ranks_by_signal = counts["signals"].tolist() if "signals" in counts else [0] * len(SIGNALS)
        received = [signal for signal, ranks in zip(SIGNALS, ranks_by_signal, strict=True) if ranks]
        return UpdateNumbers(
            good=bool(counts["good"]),
            norm=counts["norm"].item(),
            tokens=tokens,
            loss=sums["loss"].item() / tokens,
            signal=received[-1] if received else None,
            sums={name: value.tolist() for name, value in sums.items()},
        )


# Validation.


class Means:
    """Means over all predictions of a validation; Lightning would average those of the ranks."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, list[Tensor]] = defaultdict(list)
        self._counts: Counter[str] = Counter()

    def add(self, name: str, summed: Tensor, count: int) -> None:
        """Count a sum over ``count`` predictions, which the host does not read yet."""
        self._sums[name].append(summed.detach())
        self._counts[name] += count

    def over_all_ranks(self) -> dict[str, float]:
        """The means of all names counted by any rank, equal on all ranks; resets them."""
        counted = {
            name: (math.fsum(torch.stack(sums).tolist()), self._counts[name])
            for name, sums in self._sums.items()
        }
        ranks = [counted]
        if dist.is_initialized():
            ranks *= dist.get_world_size()
            dist.all_gather_object(ranks, counted)
        self._sums.clear()
        self._counts.clear()
        parts: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        for rank in ranks:
            for name, part in rank.items():
                parts[name].append(part)
        return {
            name: math.fsum(total for total, _ in counts) / sum(count for _, count in counts)
            for name, counts in parts.items()
        }
