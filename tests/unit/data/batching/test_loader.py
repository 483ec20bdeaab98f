"""A run stopped anywhere and resumed trains on exactly the batches that remain."""

import logging
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

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[bytes] = []
        self.fail_at = fail_at

    def training_step(self, update: Update[Batch], index: int) -> torch.Tensor:
        if self.fail_at is not None and self.global_step == self.fail_at:
            raise KeyboardInterrupt
        self.seen += map(content, update.batches)
        return self.weight.sum()

    def validation_step(self, batch: Batch, index: int) -> None:
        pass

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder: Path, steps: int, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        max_steps=steps,
        max_epochs=-1,
        check_val_every_n_epoch=None,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
        **({"enable_checkpointing": False, "val_check_interval": 1000} | options),
    )


def train(
    folder: Path,
    steps: int,
    workers: int = 0,
    checkpoint: Path | None = None,
    accumulation: int = 1,
    **options: Any,
) -> tuple[list[bytes], pl.Trainer]:
    recorder, run = Recorder(), trainer(folder, steps, **options)
    module = sampling_module(folder, workers=workers)
    module.accumulation = accumulation
    run.fit(recorder, module, ckpt_path=checkpoint, weights_only=True)
    return recorder.seen, run


def batches_an_epoch(folder: Path) -> int:
    module = sampling_module(folder)
    module.setup("fit")
    return module.sequence.epoch_length


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.thorough)])
def test_stopped_by_max_steps_and_resumed_equals_uninterrupted(folder: Path, workers: int) -> None:
    epoch = batches_an_epoch(folder)
    total = 2 * epoch + 3
    whole, _ = train(folder, total, workers)
    assert len(set(whole)) == total  # no two batches are the same, in any epoch
    # A checkpoint of each step of an epoch is resumed from below.
    stops = (1, 2 * epoch) if workers == 0 else (1, epoch + 2)
    for stop in stops:
        before, run = train(folder, stop, workers)
        run.save_checkpoint(folder / "stopped.ckpt")
        after, _ = train(folder, total, workers, folder / "stopped.ckpt")
        assert before + after == whole, f"stopped after step {stop} of {total}"


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


def kill_a_worker(folder: Path, busy: bool) -> None:
    """In a fork: the error must come while it waits for a batch, or while it is busy elsewhere."""
    multiprocessing.set_start_method("fork", force=True)
    module = data_module(folder, workers=2)
    module.setup("fit")
    updates = iter(module.train_dataloader())
    next(updates)
    multiprocessing.active_children()[0].kill()
    for _ in iter(lambda: time.sleep(60), 0) if busy else updates:
        pass


@pytest.mark.parametrize("busy", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_a_worker_that_is_killed_ends_the_process(folder: Path, busy: bool) -> None:
    process = FORKS.Process(target=kill_a_worker, args=(folder, busy), daemon=False)
    process.start()
    assert exit_code(process) == 1


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


def test_another_accumulation_goes_on_in_the_same_row(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, _ = train(folder, 18)
    before, run = train(folder, 3, accumulation=2)
    run.save_checkpoint(folder / "stopped.ckpt")
    with caplog.at_level(logging.INFO):
        after, run = train(folder, 6, checkpoint=folder / "stopped.ckpt", accumulation=3)
    assert before + after == whole[: 3 * 2 + 3 * 3]
    assert "resuming with 1 x 3 batches an update (ranks x accumulation), 1 x 2" in caplog.text
    run.save_checkpoint(folder / "again.ckpt")
    last, _ = train(folder, 9, checkpoint=folder / "again.ckpt")
    assert before + after + last == whole


def dealt(folder: Path, ranks: int, updates: int, state: dict[str, Any] | None, done: int) -> Any:
    """The batches that ranks train on together, in the order of the row; and where they stand."""
    module = sampling_module(folder)
    module.setup("fit")
    taken: dict[int, bytes] = {}
    for rank in range(ranks):
        loader = UpdateLoader(
            module._training,
            module.sequence,
            assignment=RankAssignment(ranks, 2),
            rank=rank,
            done=lambda: done,
            workers=0,
            pin_memory=False,
        )
        if state is not None:
            loader.load_state_dict(state)
        for update in islice(loader, updates):
            taken |= dict(zip(update.numbers, map(content, update.batches), strict=True))
    return [taken[number] for number in sorted(taken)], loader.state_dict()


def test_other_ranks_go_on_in_the_same_row(folder: Path) -> None:
    epoch = batches_an_epoch(folder)
    whole, _ = dealt(folder, 1, 2 * epoch + 9, None, 0)
    first, state = dealt(folder, 3, 2, None, 0)
    second, state = dealt(folder, 1, 3, state, 2)
    third, _ = dealt(folder, 2, epoch, state, 5)
    together = first + second + third
    assert together == whole[: len(together)]
    assert len(together) == 3 * 2 * 2 + 1 * 3 * 2 + 2 * epoch * 2
    assert len(set(together[:epoch])) == epoch


def test_another_budget_resumes_at_the_same_part_of_the_epoch(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    modules = [sampling_module(folder), sampling_module(folder, batch_tokens=48)]
    for module in modules:
        module.setup("fit")
    old, new = (module.sequence.epoch_length for module in modules)
    assert new > 1.5 * old
    first, second = (module.train_dataloader() for module in modules)
    first.load_state_dict(first.state_dict())
    assert not caplog.records
    second.load_state_dict(first.state_dict())
    assert "batch_tokens 96 -> 48" in caplog.text
    second._done = lambda: old + old // 2
    (update,) = islice(second, 1)
    assert update.numbers[0] // new == 1
    assert update.numbers[0] % new / new == pytest.approx(0.5, abs=0.1)
