"""Checks of text and outputs leave training as it is."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.runs.runs import SMALL, composed, corpus_overrides
from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.quality.failures.thresholds import FILE
from transformer.runs.train import train
from transformer.settings.run import RunConfig


def configured(folder: Path, *overrides: str) -> RunConfig:
    """Four updates of a small model on a text with faults."""
    text = corpus_overrides(folder)
    for file in (folder / "train.src", folder / "train.tgt"):
        file.write_text("\ufffd alpha\n" * 10 + file.read_text())
    bounds = ["trainer.max_steps=4", "trainer.val_check_interval=2", "test=false", "report=none"]
    tiny = ["model.d_model=16", "model.ffn_dim=16", "model.num_heads=2", "decoding=greedy"]
    return composed([*text, *SMALL, *tiny, *bounds, *overrides], folder / "cache")


@pytest.mark.thorough
def test_without_the_checks_training_is_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logged: dict[str, dict[str, float]] = {}
    weights: dict[str, Any] = {}
    for quality in ("true", "false"):
        run = tmp_path / quality
        logged[quality] = train(configured(tmp_path, f"callbacks.quality={quality}"), run)
        weights[quality] = load_checkpoint(run / "checkpoints" / "last.ckpt").model.state_dict()
        assert (run / FILE).exists() is (quality == "true")
        assert ("transformer doctor shows more" in caplog.text) is (quality == "true")
        caplog.clear()
    failures = {name for name in logged["true"] if "failures" in name}
    assert "val/failures/empty" in failures
    assert logged["true"].keys() - logged["false"].keys() == failures
    kept = [name for name in logged["false"] if name.startswith("val/")]
    assert all(logged["true"][name] == logged["false"][name] for name in kept)
    torch.testing.assert_close(weights["true"], weights["false"], rtol=0, atol=0)
