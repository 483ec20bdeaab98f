"""A run that meets losses which are no numbers: it leaves them out, goes back, or says why not."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.helpers.runs.runs import SMALL, composed, corpus_overrides
from transformer.checkpoint.checkpoint import read_payload
from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch
from transformer.runs.train import train
from transformer.tasks.translation import TranslationModule

pytestmark = pytest.mark.thorough

RUN = [
    *SMALL,
    "model.d_model=16",
    "model.num_heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "trainer.max_steps=12",
    "trainer.val_check_interval=4",
    "trainer.log_every_n_steps=1",
    "callbacks.samples=0",
    "decoding=greedy",
    "schedule=constant",
    "optimizer.lr=1e-3",
    "schedule.warmup=0",
    "recovery.skips=3",
]


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes (update, return) pairs at which the loss shall be no number."""
    learn = TranslationModule.micro_loss
    bad: set[tuple[int, int]] = set()

    def micro_loss(self: TranslationModule, batch: Batch) -> tuple[Tensor, int, dict[str, Tensor]]:
        loss, tokens, sums = learn(self, batch)
        if (self.global_step, self.detector.returned) in bad and self.trainer.training:
            loss, sums = loss * math.nan, {"loss": sums["loss"] * math.nan}
        return loss, tokens, sums

    monkeypatch.setattr(TranslationModule, "micro_loss", micro_loss)
    return bad


def trained(folder: Path, *changes: str) -> dict[str, Any]:
    """Train and test; the content of ``last.ckpt`` after that."""
    train(composed([*RUN, *corpus_overrides(folder), *changes], folder / "cache"), folder / "run")
    return read_payload(folder / "run" / "checkpoints" / "last.ckpt")


def rate(payload: dict[str, Any]) -> float:
    """The learning rate of a checkpoint."""
    learning_rate: float = payload["optimizer_states"][0]["param_groups"][0]["lr"]
    return learning_rate


def test_single_bad_updates_are_left_out_and_the_run_goes_on(tmp_path: Path, poisoned: Any) -> None:
    poisoned |= {(5, 0), (6, 0), (9, 0)}
    last = trained(tmp_path)
    assert last["global_step"] == 12
    assert last["recovery"]["skipped"] == 3
    assert last["recovery"]["returned"] == 0

    with (tmp_path / "run" / "metrics.csv").open() as file:
        counted = [row["train/skipped"] for row in csv.DictReader(file) if row["train/skipped"]]
    assert list(map(float, counted)) == [0, 0, 0, 0, 0, 1, 2, 2, 2, 3, 3, 3]
    # As many updates of Adam as were good.
    assert {state["step"].item() for state in last["optimizer_states"][0]["state"].values()} == {9}
    assert all(weight.isfinite().all() for weight in last["state_dict"].values())


def test_too_many_in_a_row_lead_back_to_a_checkpoint(tmp_path: Path, poisoned: Any) -> None:
    poisoned |= {(update, 0) for update in range(6, 12)}
    last = trained(tmp_path)
    assert last["global_step"] == 12
    assert last["recovery"]["returned"] == 1
    assert last["recovery"]["skipped"] == 3
    assert rate(last) == pytest.approx(5e-4)

    resumed = f"checkpoint={tmp_path / 'run'}"
    assert rate(trained(tmp_path, "trainer.max_steps=14", resumed)) == pytest.approx(5e-4)
    # Another learning rate begins without returns.
    other = trained(tmp_path, "trainer.max_steps=16", "optimizer.lr=2e-4", resumed)
    assert other["recovery"]["returned"] == 0
    assert rate(other) == pytest.approx(2e-4)


def test_a_run_that_diverges_again_and_again_shows_the_batch(tmp_path: Path, poisoned: Any) -> None:
    poisoned |= {(update, back) for update in range(6, 12) for back in range(3)}
    with pytest.raises(InputError, match="after 2 returns to the last good checkpoint") as raised:
        trained(tmp_path, "recovery.returns=2")
    text = tmp_path / "run" / "diverged-at-9-rank-0.txt"
    assert str(text) in str(raised.value)
    assert len(text.read_text().splitlines()) > 10
    last = read_payload(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert last["global_step"] == 4
