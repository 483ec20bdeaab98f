"""One big batch, the same sentences in four micro-batches, or these on two ranks: one gradient."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.losses import loss_config
from tests.helpers.training.updates import module_settings, quiet_trainer
from transformer.data.batching.batch import Batch, collate
from transformer.data.batching.loader import Update
from transformer.tasks.translation_module import TranslationModule
from transformer.training.distributed.ddp import ReplicatedStrategy

# Of very different lengths, so that a mean of means would be another number.
SENTENCES = [([5, 6], [7]), ([8], [9, 10, 11, 12, 13, 14, 15]), ([4], [5, 6]), ([7, 8, 9], [10])]


class OneUpdate:
    """The micro-batches of this rank, once."""

    def __init__(self, batches: list[Batch]) -> None:
        self.update = Update.of(batches, list(range(len(batches))))

    def __iter__(self) -> Iterator[Update[Batch]]:
        yield self.update


class Probe(TranslationModule):
    """Keeps the gradient that the optimizer is about to see."""

    def __init__(self, batches: list[Batch], file: Path, **loss: Any) -> None:
        settings = module_settings(loss=loss_config(**loss))
        super().__init__(tiny_transformer(norm_order="post"), **settings)
        self.batches = batches
        self.file = file

    def train_dataloader(self) -> OneUpdate:
        return OneUpdate(self.batches[self.trainer.global_rank :: self.trainer.world_size])

    def normalize(self, tokens: int, adam: Optimizer) -> Tensor:
        norm = super().normalize(tokens, adam)
        if self.trainer.is_global_zero:
            torch.save({n: p.grad for n, p in self.model.named_parameters()}, self.file)
        return norm


def gradient(batches: list[Batch], file: Path, ranks: int = 1, **loss: Any) -> dict[str, Tensor]:
    strategy = ReplicatedStrategy(start_method="fork") if ranks > 1 else "auto"
    trainer = quiet_trainer(file.parent, devices=ranks, strategy=strategy, max_steps=1)
    trainer.fit(Probe(batches, file, **loss))
    gradients: dict[str, Tensor] = torch.load(file, weights_only=True)
    return gradients


R_DROP = {"chunk": 3, "consistency": "r_drop", "consistency_weight": 5.0}
"""Without dropout its passes do not differ, and its gradient is that of one."""


@pytest.mark.parametrize("loss", [{"chunk": 0}, {"chunk": 3}, R_DROP])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_gradient_is_that_of_one_big_batch(
    tmp_path: Path, loss: dict[str, Any], ranks: int
) -> None:
    big = [collate([s for s, _ in SENTENCES], [t for _, t in SENTENCES])]
    micro = [collate([source], [target]) for source, target in SENTENCES]
    expected = gradient(big, tmp_path / "big.pt")
    actual = gradient(micro, tmp_path / "micro.pt", ranks, **loss)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-5, atol=1e-6)
    assert max(value.abs().max() for value in expected.values()) > 1e-2
