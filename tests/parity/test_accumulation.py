"""One process with four micro-batches, and two ranks with two each, learn the same weights."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.updates import loss_config, module_settings, quiet_trainer
from transformer.data.batching.batch import Batch, collate
from transformer.data.batching.loader import Update
from transformer.settings.training import OptimizerConfig
from transformer.tasks.translation import TranslationModule
from transformer.training.distributed.ddp import replicated_strategy

UPDATES = 6
TIMEOUT = 120

# Of very different lengths, so that a mean of means would be another number.
SENTENCES = [([5, 6], [7]), ([8], [9, 10, 11, 12, 13, 14, 15]), ([4], [5, 6]), ([7, 8, 9], [10])]

MUON = OptimizerConfig("muon", lr=1e-3, weight_decay=0.1, bfloat16=False)
R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}


def linked_batches() -> list[Batch]:
    """Four micro-batches an update, of three pairs each, with word links."""
    random = Random(1)

    def rows() -> list[list[int]]:
        return [[random.randrange(4, 13) for _ in range(random.randrange(1, 9))] for _ in range(3)]

    batches = []
    for _ in range(4 * UPDATES):
        sources, targets = rows(), rows()
        sizes = [(len(t), len(s)) for s, t in zip(sources, targets, strict=True)]
        links = [np.eye(*size, dtype=bool) for size in sizes]
        batches.append(collate(sources, targets, links))
    return batches


class Shared(TranslationModule):
    """Trains in float64 on its rank's micro-batches; each rank stores the weights at the end."""

    def __init__(self, file: Path, batches: list[Batch], an_update: int, **settings: Any) -> None:
        model = tiny_transformer(**settings.pop("model", {})).double().train()
        super().__init__(**module_settings(model, clip=0.5, **settings))
        self.file, self.batches, self.an_update = file, batches, an_update
        self.gradient: dict[str, Tensor | None] = {}

    def train_dataloader(self) -> "Shared":
        return self

    def __iter__(self) -> Iterator[Update[Batch]]:
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        for start in range(0, len(self.batches), self.an_update):
            numbers = list(range(start, start + self.an_update))[rank::ranks]
            yield Update.of([self.batches[number] for number in numbers], numbers)

    def normalize(self, tokens: float | Tensor, adam: Optimizer) -> Tensor:
        norm = super().normalize(tokens, adam)
        self.gradient = {name: p.grad for name, p in self.model.named_parameters()}
        return norm

    def on_train_end(self) -> None:
        state = [self.model.state_dict(), self.gradient]
        torch.save(state, f"{self.file}.{self.trainer.global_rank}")


def _train(file: Path, batches: list[Batch], an_update: int, ranks: int, options: Any) -> None:
    torch.set_num_threads(1)
    module = Shared(file, batches, an_update, **options)
    strategy: Any = "auto"
    if ranks > 1:
        # Small buckets, so that several leave during the backward pass.
        more: dict[str, Any] = {"start_method": "fork", "bucket_cap_mb": 0.01}
        strategy = replicated_strategy(module.model.config, **more)
    quiet_trainer(file.parent, devices=ranks, strategy=strategy, max_epochs=1).fit(module)


def trained(
    file: Path, batches: list[Batch], an_update: int, ranks: int = 1, **options: Any
) -> list[list[dict[str, Tensor]]]:
    """Weights and last gradient of each rank; fails when the processes hang."""
    process = multiprocessing.get_context("fork").Process(
        target=_train, args=(file, batches, an_update, ranks, options)
    )
    process.start()
    process.join(TIMEOUT)
    hangs = process.is_alive()
    process.kill()
    assert not hangs, f"no end after {TIMEOUT} seconds"
    assert process.exitcode == 0
    return [torch.load(f"{file}.{rank}", weights_only=True) for rank in range(ranks)]


def assert_alike(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if value is None:
            assert actual[name] is None, name
        else:
            torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-9)


# Each process would make the checks anew.
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "options",
    [
        {"model": {"dropout": 0.1}},
        {"model": {"dropout": 0.1}, "loss": loss_config(chunk=3, **R_DROP)},
        # A layer may be dropped from the last micro-batch, or from all.
        {"model": {"dropout": 0.1, "layer_drop": 0.5}},
        # Ranks must agree which matrices have a gradient: they share out the others.
        {"model": {"dropout": 0.1, "layer_drop": 0.5}, "optimizer": MUON},
        {"model": {"lora_rank": 2}},
        {"model": {"freeze": ("encoder",)}},
        {"model": {"attention": "eager"}, "loss": loss_config(alignment_weight=0.5)},
    ],
    ids=["plain", "r_drop", "layer_drop", "layer_drop_muon", "lora", "frozen", "guided"],
)
def test_two_ranks_learn_the_weights_of_one_process(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    batches = linked_batches()
    ((weights, gradient),) = trained(tmp_path / "one", batches, 4, **options)
    ranks = trained(tmp_path / "two", batches, 4, ranks=2, **options)
    for of_rank, gradient_of_rank in ranks:
        assert_alike(of_rank, weights)
        assert_alike(gradient_of_rank, gradient)
    begun = tiny_transformer(**options["model"]).state_dict()
    assert any((value - begun[name]).abs().max() > 1e-3 for name, value in weights.items())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_gradient_is_that_of_one_big_batch(tmp_path: Path, ranks: int) -> None:
    big = [collate([s for s, _ in SENTENCES], [t for _, t in SENTENCES])]
    micro = [collate([source], [target]) for source, target in SENTENCES]
    ((_, expected),) = trained(tmp_path / "big", big, 1)
    _, actual = trained(tmp_path / "micro", micro, 4, ranks)[0]
    assert_alike(actual, expected)
    assert max(value.abs().max() for value in expected.values()) > 1e-2
