"""A run stopped anywhere and resumed trains on exactly the batches that remain."""

import multiprocessing
import os
import signal
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn

from tests.helpers.data.corpora import data_module, write_corpus
from tests.helpers.runs.processes import FORKS, exit_code
from transformer.data.batching.batch import Batch
from transformer.data.batching.batch_sequence import RankAssignment
from transformer.data.batching.loader import Update, UpdateLoader
from transformer.data.datamodules.translation import TranslationData


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus")).parent


def sampling_module(folder: Path, **changes: Any) -> TranslationData:
    return data_module(folder, sampling=0.3, **changes)


def content(batch: Batch) -> bytes:
    return batch.source.numpy().tobytes() + batch.target_output.numpy().tobytes()


class Recorder(pl.LightningModule):
    """Keeps the bytes of each micro-batch, in the order in which it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[bytes] = []

    def training_step(self, update: Update[Batch], index: int) -> torch.Tensor:
        self.seen += map(content, update.batches)
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(
    folder: Path,
    steps: int,
    workers: int = 0,
    checkpoint: Path | None = None,
    **options: Any,
) -> list[bytes]:
    """Train, and return the content of each batch."""
    recorder = Recorder()
    module = sampling_module(folder, workers=workers)
    trainer = pl.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        default_root_dir=folder,
        **({"enable_checkpointing": False} | options),
    )
    trainer.fit(recorder, module, ckpt_path=checkpoint, weights_only=True)
    return recorder.seen


def batches_an_epoch(folder: Path) -> int:
    module = sampling_module(folder)
    module.setup("fit")
    return module.sequence.epoch_length


def test_a_sigterm_to_all_processes_leaves_the_batches_coming(folder: Path) -> None:
    module = sampling_module(folder, workers=2)
    module.setup("fit")
    updates = iter(module.train_dataloader())
    # One batch of each worker: before that, a worker may not have started.
    assert len(list(islice(updates, 2))) == 2
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    for worker in workers:
        os.kill(worker.pid, signal.SIGTERM)  # type: ignore[arg-type]
    assert len(list(islice(updates, 20))) == 20
    module.on_exception(KeyboardInterrupt())
    assert not multiprocessing.active_children()


def kill_a_worker(folder: Path) -> None:
    """In a fork: the error must come while the process is busy elsewhere."""
    multiprocessing.set_start_method("fork", force=True)
    module = data_module(folder, workers=2)
    module.setup("fit")
    updates = iter(module.train_dataloader())
    next(updates)
    multiprocessing.active_children()[0].kill()
    while True:
        time.sleep(60)


@pytest.mark.thorough
def test_a_worker_that_is_killed_ends_the_process(folder: Path) -> None:
    process = FORKS.Process(target=kill_a_worker, args=(folder,), daemon=False)
    process.start()
    assert exit_code(process) == 1


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.thorough)])
def test_resumed_from_any_checkpoint_of_a_run_equals_the_run(
    folder: Path, tmp_path: Path, workers: int
) -> None:
    total = batches_an_epoch(folder) + 4
    saving = ModelCheckpoint(
        tmp_path, "{step}", save_top_k=-1, every_n_train_steps=4 if workers else 1
    )
    whole = train(folder, total, workers, callbacks=[saving], enable_checkpointing=True)
    assert len(set(whole)) == total  # no two batches are the same, in any epoch
    checkpoints = list(tmp_path.iterdir())
    assert len(checkpoints) > 2
    for path in checkpoints:
        step = int(path.stem.removeprefix("step="))
        assert train(folder, total, workers, checkpoint=path) == whole[step:], path.name


def loader_of(module: TranslationData, rank: int, done: int, **sizes: int) -> UpdateLoader[Any]:
    return UpdateLoader(
        module._training,
        module.sequence,
        assignment=RankAssignment(**sizes),
        rank=rank,
        done=lambda: done,
        workers=0,
        pin_memory=False,
    )


def test_other_ranks_or_accumulation_go_on_in_the_same_sequence(folder: Path) -> None:
    """In order, all batches that all ranks train on are those of one rank."""
    epoch = batches_an_epoch(folder)
    alone = sampling_module(folder)
    alone.setup("fit")
    updates_alone = islice(loader_of(alone, 0, 0), 2 * epoch + 24)
    whole = [content(batch) for update in updates_alone for batch in update.batches]
    together: list[bytes] = []
    state: dict[str, Any] | None = None
    done = 0
    for ranks, accumulation, updates in ((3, 2, 2), (1, 2, 3), (1, 3, 2), (2, 2, epoch // 2)):
        module = sampling_module(folder)
        module.setup("fit")
        taken: dict[int, bytes] = {}
        for rank in range(ranks):
            loader = loader_of(module, rank, done, ranks=ranks, accumulation=accumulation)
            if state is not None:
                loader.load_state_dict(state)
            for update in islice(loader, updates):
                taken |= dict(zip(update.numbers, map(content, update.batches), strict=True))
        assert len(taken) == updates * ranks * accumulation
        state = loader.state_dict()
        together += [taken[number] for number in sorted(taken)]
        done += updates
    assert together == whole[: len(together)]
    assert len(together) > epoch == len(set(together[:epoch]))


def test_another_budget_resumes_at_the_same_part_of_the_epoch(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    modules = [sampling_module(folder), sampling_module(folder, batch_tokens=48)]
    for module in modules:
        module.setup("fit")
    old, new = (module.sequence.epoch_length for module in modules)
    assert new > 1.5 * old
    state = modules[0].train_dataloader().state_dict()
    modules[0].train_dataloader().load_state_dict(state)
    assert not caplog.records
    loader = loader_of(modules[1], 0, old + old // 2)
    loader.load_state_dict(state)
    assert "batch_tokens 96 -> 48" in caplog.text
    (update,) = islice(loader, 1)
    assert update.numbers[0] // new == 1
    assert update.numbers[0] % new / new == pytest.approx(0.5, abs=0.1)
