"""The trainings that benchmarks/training/speed.py compares, each in its own process.

speed.py starts ``python -m benchmarks.support.training_subjects FOLDER SUBJECT KEY=VALUE…`` and
writes numbers to its stdin. It makes so many updates for each number, and answers in a line of
JSON; to the word ``products`` ours answers how long the matrix products of these updates take alone
(the least time of an update on a CPU). Ours is a run as ``train.py`` makes it, with loader and
logging. The others are plain loops with the same batches in memory, the same optimizer, schedule
and loss. Hugging Face's model starts from our weights.
"""

import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.support.marian_twin import logits, marian
from benchmarks.support.torch_twin import TorchTransformer
from benchmarks.support.training_process import MOST
from transformer.cli.config import compose_config, run_settings
from transformer.data.batching.batch import Batch
from transformer.data.batching.loader import Update
from transformer.model.transformer import Transformer
from transformer.runs.train import fit
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import PAD
from transformer.tasks.registry import make_task
from transformer.training.cpu_allocator import keep_freed_memory
from transformer.training.optimization import build_optimizer, build_schedule

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}

Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Dtype, shape and strides."""


class Products(TorchDispatchMode):
    """Notes both factors of every matrix product that is computed within it."""

    def __init__(self) -> None:
        super().__init__()
        self.factors: list[tuple[Layout, Layout]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Note and run."""
        if str(function.overloadpacket).removeprefix("aten.") in PRODUCTS:
            *_, left, right = (layout(factor) for factor in args if isinstance(factor, Tensor))
            self.factors.append((left, right))
        return function(*args, **(kwargs or {}))

    def seconds(self) -> float:
        """Time of all of them, one after the other; the first round is not counted."""
        made = {factor: random_factor(*factor) for pair in self.factors for factor in pair}
        for _ in range(2):
            began = clock()
            for left, right in self.factors:
                torch.matmul(made[left], made[right])
        return clock() - began


def clock() -> float:
    """Seconds; of one thread only those that it computes, which other processes change little."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def layout(factor: Tensor) -> Layout:
    """What decides how fast a factor is multiplied."""
    return factor.dtype, tuple(factor.shape), factor.stride()


def random_factor(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Normal numbers in this layout."""
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return torch.randn(last + 1).to(dtype).as_strided(shape, strides)


@dataclass
class Answer:
    """What so many updates were.

    Attributes:
        seconds: They took.
        computing: Of these, as ``matrix_products.clock`` counts.
        tokens: Target tokens, without padding.
        loss: Mean over those tokens, label smoothing included, in nats.
        peak: Memory that the process has had resident at most, in MiB.
    """

    seconds: float
    computing: float
    tokens: int
    loss: float
    peak: float


class Clock:
    """Counts the updates that were asked for, answers, and waits for the next number."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.left = 0
        self.began = self.clocked = 0.0
        self.tokens = 0
        self.loss = torch.zeros((), dtype=torch.float64)

    def wait(self, products: Callable[[], float] | None = None) -> None:
        """To be called before every update; does not return after the last.

        ``products`` tells the seconds of the matrix products since the last number.
        """
        if self.left:
            return
        if self.tokens:
            seconds = time.perf_counter() - self.began
            computing = clock() - self.clocked
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            loss = float(self.loss) / self.tokens
            self.say(json.dumps(Answer(seconds, computing, self.tokens, loss, peak).__dict__))
        else:
            self.say("ready")
        while (asked := sys.stdin.readline()) == "products\n" and products is not None:
            self.say(json.dumps(products()))
        if not asked:
            # Lightning would test and save what nobody wants.
            os._exit(0)
        self.left = int(asked)
        self.tokens = 0
        self.loss.zero_()
        self.began = time.perf_counter()
        self.clocked = clock()

    def count(self, tokens: int, loss: Tensor | float) -> None:
        """To be called after every update, with the sum of its loss."""
        self.left -= 1
        self.tokens += tokens
        self.loss += loss


class Paced(Callback):
    """Lets a run of ours make as many updates as it is told."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.updates: list[Update[Any]] = []

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Wait if all that were asked for are made."""
        first = not self.clock.left
        self.clock.wait(lambda: self.products(trainer, pl_module))
        self.updates = [batch] if first else [*self.updates, batch]

    def products(self, trainer: Trainer, module: Any) -> float:
        """Compute the gradients again, and tell how long their matrix products take alone."""
        with trainer.precision_plugin.train_step_context(), Products() as products:
            for update in self.updates:
                module.accumulate(update)
        module.zero_grad()
        return products.seconds()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Update[Any],
        batch_idx: int,
    ) -> None:
        """Count."""
        numbers = outputs["outcome"].numbers
        self.clock.count(numbers.tokens, numbers.sums["loss"])


def composed(folder: Path | str, overrides: list[str]) -> RunConfig:
    """The run that all of them make."""
    config = compose_config("train", [*overrides, f"data.cache={folder}/cache"])
    return run_settings(config)


def train_ours(config: RunConfig, folder: Path, clock: Clock) -> None:
    """A run, which ends with the process."""
    fit(config, folder, [Paced(clock)])


def train_plainly(config: RunConfig, name: str, clock: Clock) -> None:
    """A plain loop; ends with the process."""
    seed_everything(config.seed, verbose=False)
    model, batches = _prepared(config, name)
    optimizer = build_optimizer(config.optimizer, model)
    schedule = build_schedule(
        config.schedule.ending_at(config.trainer.max_steps), optimizer, config.model.d_model
    )
    half = config.trainer.precision == "bf16-mixed"
    for batch in _endless(batches):
        clock.wait()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            if name == "torch":
                predicted = model(batch.source, batch.target_input)
            else:
                predicted = logits(model, batch)
        targets = batch.target_output.flatten()
        loss = F.cross_entropy(
            predicted.flatten(0, 1).float(),
            targets,
            ignore_index=PAD,
            label_smoothing=config.loss.label_smoothing,
        )
        loss.backward()
        if config.trainer.gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(model.parameters(), config.trainer.gradient_clip_val)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        tokens = batch.target_tokens
        clock.count(tokens, loss.detach() * tokens)


def _prepared(config: RunConfig, name: str) -> tuple[Any, list[Batch]]:
    """The model, with our weights where it can hold them, and the batches that it learns from."""
    task = make_task(config, None)
    task.data.prepare_data()
    task.data.setup("fit")
    ours = task.module.model
    assert isinstance(ours, Transformer)
    batches = [update.batches[0] for update in islice(task.data.train_dataloader(), MOST)]
    task.data.teardown("fit")
    kinds = {
        "hf": lambda: marian(ours),
        "hf_eager": lambda: marian(ours, "eager"),
        "torch": lambda: TorchTransformer(ours),
    }
    return kinds[name]().train(), batches


def _endless(batches: list[Batch]) -> Iterator[Batch]:
    while True:
        yield from batches


def main() -> None:
    """Train until stdin ends."""
    folder, name, *overrides = sys.argv[1:]
    # Whatever libraries print must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    clock = Clock(lambda line: print(line, file=answers))
    config = composed(Path(folder), overrides)
    if name == "ours":
        train_ours(config, Path(folder) / f"run_{os.getpid()}", clock)
        return
    if config.keep_memory:
        keep_freed_memory()
    train_plainly(config, name, clock)


if __name__ == "__main__":
    main()
