"""A run stopped anywhere and resumed trains on exactly the batches that remain."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn

from tests.unit.data.corpora import data_module, write_corpus
from transformer.data.batch import Batch
from transformer.data.datamodule import DataModule


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus")).parent


def sampling_module(folder: Path, **changes: Any) -> DataModule:
    return data_module(folder, sampling=0.3, **changes)


class Recorder(pl.LightningModule):
    """Keeps the bytes of each batch, in the order in which it is trained on."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[bytes] = []
        self.fail_at = fail_at

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        if self.fail_at is not None and self.global_step == self.fail_at:
            raise KeyboardInterrupt
        self.seen.append(batch.source.numpy().tobytes() + batch.target_output.numpy().tobytes())
        return self.weight.sum()

    def validation_step(self, batch: Batch, index: int) -> None:
        pass

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder: Path, steps: int, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
        **({"enable_checkpointing": False} | options),
    )


def train(
    folder: Path, steps: int, workers: int = 0, checkpoint: Path | None = None, **options: Any
) -> tuple[list[bytes], pl.Trainer]:
    recorder, run = Recorder(), trainer(folder, steps, **options)
    run.fit(
        recorder, sampling_module(folder, workers=workers), ckpt_path=checkpoint, weights_only=True
    )
    return recorder.seen, run


def batches_an_epoch(folder: Path) -> int:
    module = sampling_module(folder)
    module.setup("fit")
    return len(module.train_dataloader())


@pytest.mark.parametrize("workers", [0, 2])
def test_stopped_by_max_steps_and_resumed_equals_uninterrupted(folder: Path, workers: int) -> None:
    epoch = batches_an_epoch(folder)
    total = 2 * epoch + 3
    whole, _ = train(folder, total, workers)
    assert len(set(whole)) == total  # no two batches are the same, in any epoch
    stops = range(1, total) if workers == 0 else (1, epoch, epoch + 2)
    for stop in stops:
        before, run = train(folder, stop, workers)
        run.save_checkpoint(folder / "stopped.ckpt")
        after, _ = train(folder, total, workers, folder / "stopped.ckpt")
        assert before + after == whole, f"stopped after step {stop} of {total}"


@pytest.mark.parametrize(
    "when",
    [{"every_n_train_steps": 1}, {"save_on_train_epoch_end": False}],
    ids=["after each step", "after each validation"],
)
def test_resumed_from_any_checkpoint_of_a_run_equals_the_run(
    folder: Path, tmp_path: Path, when: dict[str, Any]
) -> None:
    total = batches_an_epoch(folder) + 4
    saving = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, **when)
    whole, _ = train(
        folder, total, callbacks=[saving], enable_checkpointing=True, val_check_interval=2
    )
    checkpoints = list(tmp_path.iterdir())
    assert len(checkpoints) >= total // 2
    for path in checkpoints:
        step = int(path.stem.removeprefix("step="))
        after, _ = train(folder, total, checkpoint=path, val_check_interval=2)
        assert after == whole[step:], path.name


def test_interrupted_in_a_step_repeats_that_step_only(folder: Path) -> None:
    epoch = batches_an_epoch(folder)
    total, stop = epoch + 4, epoch + 1
    whole, _ = train(folder, total)
    interrupted, run = Recorder(fail_at=stop), trainer(folder, total)
    with pytest.raises(SystemExit):
        run.fit(interrupted, sampling_module(folder))
    run.save_checkpoint(folder / "interrupted.ckpt")
    after, _ = train(folder, total, checkpoint=folder / "interrupted.ckpt")
    assert interrupted.seen + after == whole


def test_resuming_with_another_budget_warns(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    modules = [sampling_module(folder), sampling_module(folder, batch_tokens=64)]
    for module in modules:
        module.setup("fit")
    first, second = (module.train_dataloader() for module in modules)
    first.load_state_dict(first.state_dict())
    assert not caplog.records
    second.load_state_dict(first.state_dict())
    assert "batch_tokens 96 -> 64" in caplog.text


def test_overfitting_repeats_the_same_batches(folder: Path) -> None:
    seen, _ = train(folder, 6, overfit_batches=2)
    assert len(set(seen)) == 2
