"""What ``Measure`` logs of the updates since the last log, with a trainer that only records."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.helpers.training.fakes import fake_module, fake_trainer, logged
from transformer.common.errors import InputError
from transformer.data.batching.batch import collate
from transformer.data.batching.loader import Update
from transformer.training.callbacks.metrics import Measure
from transformer.training.update import Outcome, Totals


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds that pass when told to."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("time.perf_counter", lambda: clock.now)
    return clock


# Rows of 3 and 2 source and of 2 and 4 target tokens, end of sentence included.
UPDATE = Update.of([collate([[5, 6], [7]], [[5], [6, 7, 8]])], [0])


def outputs_of(loss: float, *, tokens: int = 6, good: bool = True, **sums: Any) -> dict[str, Any]:
    """The outputs of a training step on one rank."""
    tensors = {name: torch.tensor(value) for name, value in ({"loss": loss} | sums).items()}
    norm = torch.tensor(0.5)
    return {"outcome": Outcome(torch.tensor(good), norm, Totals(tokens, tensors), 0.125, 1)}


def run_update(
    measure: Measure, trainer: Any, module: Any, loss: float, *, good: bool = True, **sums: Any
) -> None:
    measure.on_train_batch_start(trainer, module, UPDATE, 0)
    trainer.global_step += 1
    outputs = outputs_of(loss, good=good, **sums)
    measure.on_train_batch_end(trainer, module, outputs, UPDATE, 0)


def test_measure_counts_since_it_logged_last(clock: SimpleNamespace) -> None:
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    for loss in (12.0, 18.0):
        clock.now += 1
        run_update(measure, trainer, module, loss)
    (values,) = logged(module)
    assert values["train/loss"] == (12 + 18) / (2 * 6)
    # 5 of 6 source and 6 of 8 target places are real.
    assert values["train/padding"] == pytest.approx(1 - 11 / 14)
    assert values["lr"] == 0.125
    # The clock starts with the first batch, and goes on from one log to the next.
    assert values["train/tokens_per_second"] == 12 / 1
    clock.now += 3
    run_update(measure, trainer, module, 6.0)
    # The time of a validation does not count.
    measure.on_validation_start(trainer, module)
    clock.now += 1000
    measure.on_train_batch_start(trainer, module, UPDATE, 1)
    clock.now += 3
    run_update(measure, trainer, module, 6.0)
    assert logged(module)[1]["train/loss"] == 1.0
    assert logged(module)[1]["train/tokens_per_second"] == 12 / 6
    # Skipped updates have no loss.
    for loss, good in ((float("nan"), False), (12.0, True)):
        clock.now += 1
        run_update(measure, trainer, module, loss, good=good)
    assert logged(module)[2]["train/loss"] == 2.0
    assert logged(module)[2]["train/tokens_per_second"] == 12 / 2


def test_measure_logs_the_means_of_other_losses(clock: SimpleNamespace) -> None:
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    for summed, linked in ((6.0, 2.0), (3.0, 4.0)):
        clock.now += 1
        run_update(measure, trainer, module, 1.0, alignment=[summed, linked])
    for _ in range(2):
        clock.now += 1
        run_update(measure, trainer, module, 1.0)
    with_links, without = logged(module)
    assert with_links["train/alignment_loss"] == (6 + 3) / (2 + 4)
    assert "train/alignment_loss" not in without
    # The divergence of two passes.
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    for divergence in (6.0, 3.0):
        clock.now += 1
        run_update(measure, trainer, module, 1.0, consistency=divergence)
    assert logged(module)[0]["train/consistency"] == (6 + 3) / (2 * 6)


def test_the_sums_of_ones_own_loss_are_logged(clock: SimpleNamespace) -> None:
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    run_update(measure, trainer, module, 1.0, entropy=5.0, right=[0.1, 0.25])
    checkpoint: dict[str, Any] = {}
    measure.on_save_checkpoint(trainer, module, checkpoint)
    resumed = Measure()
    resumed.on_load_checkpoint(trainer, module, checkpoint)
    resumed.on_train_batch_start(trainer, module, UPDATE, 1)
    clock.now += 1
    run_update(resumed, trainer, module, 1.0, entropy=1.0, right=[0.1, 0.25])
    (values,) = logged(module)
    assert values["train/entropy"] == (5 + 1) / (2 * 6)
    assert values["train/right"] == pytest.approx(0.2 / 0.5)
    # Earlier versions saved none.
    del checkpoint["measured"]["other_sums"]
    Measure().on_load_checkpoint(trainer, module, checkpoint)


@pytest.mark.parametrize("sums", [{"padding": 1.0}, {"entropy": [1.0]}, {"entropy": [1.0] * 3}])
def test_a_sum_that_cannot_be_logged_is_refused(
    sums: dict[str, Any], clock: SimpleNamespace
) -> None:
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    run_update(measure, trainer, module, 1.0)
    clock.now += 1
    with pytest.raises(InputError, match=f"micro_loss: .*{next(iter(sums))}"):
        run_update(measure, trainer, module, 1.0, **sums)


def test_a_resumed_run_logs_the_speed_since_its_start(clock: SimpleNamespace) -> None:
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    clock.now += 2
    run_update(measure, trainer, module, 1.0, consistency=5.0)
    checkpoint: dict[str, Any] = {}
    measure.on_save_checkpoint(trainer, module, checkpoint)
    resumed = Measure()
    resumed.on_load_checkpoint(trainer, module, checkpoint)
    resumed.on_train_batch_start(trainer, module, UPDATE, 1)
    clock.now += 3
    run_update(resumed, trainer, module, 2.0, consistency=1.0)
    assert logged(module)[0]["train/tokens_per_second"] == 6 / 3
    assert logged(module)[0]["train/loss"] == (1 + 2) / (2 * 6)
    assert logged(module)[0]["train/consistency"] == (5 + 1) / (2 * 6)
    # The saved counts are sums over the ranks; those of the resumed ranks have the same sums.
    ranks = [Measure(), Measure()]
    for rank, restored in enumerate(ranks):
        trainer = fake_trainer(is_global_zero=not rank)
        restored.on_load_checkpoint(trainer, module, checkpoint)
    assert sum(restored.real for restored in ranks) == 11
    assert sum(restored.padded for restored in ranks) == 14


def test_measure_counts_over_all_micro_batches_and_ranks(clock: SimpleNamespace) -> None:
    measure, module = Measure(), fake_module()
    trainer = fake_trainer(log_every_n_steps=1)
    # Another rank has had a batch without padding, of 30 tokens.
    other = torch.tensor([30.0, 30.0], dtype=torch.float64)
    trainer.strategy.reduce = lambda counted, reduce_op: counted + other
    measure.on_train_batch_start(trainer, module, UPDATE, 0)
    trainer.global_step, clock.now = 1, clock.now + 2
    twice = Update.of(UPDATE.batches * 2, [0, 2])
    outputs = outputs_of(54.0, tokens=27)
    measure.on_train_batch_end(trainer, module, outputs, twice, 0)
    (values,) = logged(module)
    assert values["train/loss"] == 2.0
    assert values["train/tokens_per_second"] == 27 / 2
    assert values["train/padding"] == pytest.approx(1 - (2 * 11 + 30) / (2 * 14 + 30))
