"""The chosen candidate of an n-best list."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from transformer.commands import score
from transformer.commands.select import select
from transformer.settings.evaluation import SelectConfig


def test_the_most_probable_spelling_of_equal_texts_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two segmentations of one text are two hypotheses."""
    nbest = [("a cat", -3.0), ("a dog", -2.0), ("a dog", -9.0)]
    candidates = [{"text": text, "log_probability": value} for text, value in nbest]
    (tmp_path / "n.jsonl").write_text(json.dumps({"text": "a cat", "nbest": candidates}) + "\n")
    (tmp_path / "source").write_text("ein Tier\n")

    def judge(pairs: Sequence[tuple[str, str]], *, first: None) -> list[SimpleNamespace]:
        return [SimpleNamespace(log_probability=-1.0) for _ in pairs]

    monkeypatch.setattr(score, "load_scorer", lambda *_: (judge, None))
    config = SelectConfig(
        nbest=tmp_path / "n.jsonl",
        output=tmp_path / "best",
        source=tmp_path / "source",
        reverse="reverse",
    )
    assert select(config) == 1
    assert (tmp_path / "best").read_text() == "a dog\n"
