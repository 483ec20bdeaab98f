"""What a Transformer must be able to learn, it learns: reversing (copying: test_directions)."""

from pathlib import Path

import pytest

from tests.helpers.runs.runs import SMALL, composed, corpus_overrides
from transformer.runs.train import train

pytestmark = pytest.mark.thorough


def test_it_learns_to_reverse(tmp_path: Path) -> None:
    overrides = [
        *corpus_overrides(tmp_path, lambda words: words[::-1]),
        *SMALL,
        "model.positions=rotary",
        "data.batch_tokens=512",
        "trainer.max_steps=400",
        "trainer.val_check_interval=200",
        "trainer.log_every_n_steps=100",
    ]
    metrics = train(composed(overrides, tmp_path / "cache"), tmp_path / "run")
    # Three seeds: 87.2 to 98.3; loss up to 0.074.
    assert metrics["test/bleu"] > 75
    assert metrics["val/loss"] < 0.1
    assert metrics["train/padding"] < 0.1
    assert metrics["train/tokens_per_second"] > 0
