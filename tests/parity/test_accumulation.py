"""One big batch, the same sentences in four micro-batches, or these on two ranks: one gradient."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from tests.helpers.losses import loss_config
from tests.helpers.models import tiny_transformer
from transformer.data.batch import Batch, collate
from transformer.training.module import TranslationModule
from transformer.training.optimizer import OptimizerConfig
from transformer.training.schedule import ScheduleConfig

# Of very different lengths, so that a mean of means would be another number.
SENTENCES = [([5, 6], [7]), ([8], [9, 10, 11, 12, 13, 14, 15]), ([4], [5, 6]), ([7, 8, 9], [10])]


class Probe(TranslationModule):
    """Keeps the gradient that the optimiser is about to see."""

    def __init__(self, batches: list[Batch], file: Path, chunk: int) -> None:
        super().__init__(
            tiny_transformer(norm_order="post"),
            loss=loss_config(chunk=chunk),
            optimizer=OptimizerConfig("adam", 1e-3, (0.9, 0.98), 1e-9, 0.0),
            schedule=ScheduleConfig("constant", 0),
            portable={},
        )
        self.batches = batches
        self.file = file

    def train_dataloader(self) -> DataLoader[Batch]:
        share = self.batches[self.trainer.global_rank :: self.trainer.world_size]
        return DataLoader(share, batch_size=None)  # type: ignore[arg-type]

    def configure_gradient_clipping(self, *arguments: Any, **keywords: Any) -> None:
        if self.trainer.is_global_zero:
            torch.save({n: p.grad for n, p in self.model.named_parameters()}, self.file)
        super().configure_gradient_clipping(*arguments, **keywords)


def gradient(batches: list[Batch], file: Path, chunk: int = 0, ranks: int = 1) -> dict[str, Tensor]:
    trainer = Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="auto" if ranks == 1 else "ddp_fork",
        max_steps=1,
        accumulate_grad_batches=len(batches) // ranks,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Probe(batches, file, chunk))
    gradients: dict[str, Tensor] = torch.load(file, weights_only=True)
    return gradients


@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_gradient_is_that_of_one_big_batch(tmp_path: Path, chunk: int, ranks: int) -> None:
    big = [collate([s for s, _ in SENTENCES], [t for _, t in SENTENCES])]
    micro = [collate([source], [target]) for source, target in SENTENCES]
    expected = gradient(big, tmp_path / "big.pt")
    actual = gradient(micro, tmp_path / "micro.pt", chunk, ranks)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-5, atol=1e-6)
    assert max(value.abs().max() for value in expected.values()) > 1e-2
