"""What a Transformer must be able to learn, it learns: copying and reversing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.checks import no_checks
from tests.helpers.runs import SMALL, composed, corpus_overrides
from transformer.runs.train import train


@pytest.mark.parametrize("turn", [list, lambda words: words[::-1]], ids=["copy", "reverse"])
def test_it_learns_to(turn: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    overrides = [
        *corpus_overrides(tmp_path, turn),
        *SMALL,
        "trainer.max_steps=800",
        "trainer.val_check_interval=400",
        "trainer.log_every_n_steps=100",
    ]
    with no_checks():  # updates are alike; shorter runs check theirs
        metrics = train(composed(overrides, tmp_path / "cache"), tmp_path / "run")
    # Five seeds, float32 and bfloat16: copy 99.4 to 100, reverse 89.1 to 98.6; loss up to 0.027.
    assert metrics["test/bleu"] > 75
    assert metrics["val/loss"] < 0.1
    assert metrics["train/padding"] < 0.1
    assert metrics["train/tokens_per_second"] > 0
