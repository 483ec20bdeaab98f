"""Where a run ends: after so many passes through the corpus or updates, with a validation."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs.runs import SMALL, composed, corpus_overrides
from transformer.checkpoint.checkpoint import read_payload
from transformer.runs.train import train

pytestmark = pytest.mark.thorough

RUN = [
    *SMALL,
    *("model.d_model=16", "model.num_heads=2", "model.encoder_layers=1", "model.decoder_layers=1"),
    "trainer.max_steps=-1",
    "trainer.val_check_interval=1000",
    # It ends where the epochs do.
    "schedule=cosine",
    "schedule.warmup=0",
    "callbacks.samples=0",
    "decoding=greedy",
    "data.batch_tokens=2048",
]


def trained(folder: Path, *changes: str) -> dict[str, Any]:
    config = composed([*RUN, *corpus_overrides(folder), *changes], folder / "cache")
    train(config, folder / "run")
    return read_payload(folder / "run" / "checkpoints" / "last.ckpt")


def logged(folder: Path) -> list[dict[str, str]]:
    with (folder / "run" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_bound_in_epochs_holds_over_a_resume(tmp_path: Path) -> None:
    # The epoch ends first, and with it the cosine.
    first = trained(tmp_path, "trainer.max_epochs=1", "trainer.max_steps=1000")
    [state] = first["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    length = state["epoch_length"]
    assert first["global_step"] == length > 3
    assert set(first["lr_schedulers"][0]["_last_lr"]) == {0.0}
    # A run shorter than the interval of its validations has one, at its end.
    assert (tmp_path / "run" / "checkpoints" / "best.ckpt").exists()
    resumed = f"checkpoint={tmp_path / 'run'}"
    second = trained(tmp_path, "trainer.max_epochs=2", "trainer.accumulate_grad_batches=2", resumed)
    assert second["global_step"] == length + -(-length // 2)
    # The batches go on where the first run stopped, though nothing but an epoch bounds this one.
    [state] = second["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert (state["first"], state["since"], state["accumulation"]) == (length, length, 2)
    # An update of the second run takes two batches.
    updates = [int(row["step"]) + 1 for row in logged(tmp_path)]
    batches = [update + max(0, update - length) for update in updates]
    assert [float(row["epoch"]) for row in logged(tmp_path)] == [n / length for n in batches]
    third = trained(tmp_path, "trainer.max_epochs=2", resumed)
    assert third["global_step"] == second["global_step"]


@pytest.mark.parametrize(("updates", "validated"), [(4, [3, 4]), (6, [3, 6])])
def test_a_run_of_so_many_updates_ends_in_one_validation(
    tmp_path: Path, updates: int, validated: list[int]
) -> None:
    trained(tmp_path, f"trainer.max_steps={updates}", "trainer.val_check_interval=3")
    rows = [row for row in logged(tmp_path) if row["val/bleu"]]
    # Lightning counts from 0.
    assert [int(row["step"]) + 1 for row in rows] == validated
