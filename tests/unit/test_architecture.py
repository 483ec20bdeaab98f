"""The page of the architecture: what it adds to the program works."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.helpers.decoding.steps import RecurrentStep, search_config
from transformer.data.corpora.catalog import PUBLISHED
from transformer.decoding.batched_search import SEARCHES
from transformer.evaluation.metrics import METRICS, MetricsConfig, score
from transformer.tasks.registry import task_class

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
EXAMPLES = dict(
    re.findall(r"^\*\*A (\w+)\*\*.*?```python\n(.*?)```", PAGE.read_text("utf-8"), re.M | re.S)
)


def run(name: str) -> dict[str, Any]:
    """The names that an example defines."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(EXAMPLES[name], f"architecture.md, {name}", "exec"), names)
    return names


def test_there_is_one_of_each() -> None:
    assert list(EXAMPLES) == ["loss", "search", "corpus", "metric", "task"]
    assert all(len(code.splitlines()) <= 14 for code in EXAMPLES.values())


def test_the_loss_is_the_formula() -> None:
    focal = run("loss")["FocalTranslation"]
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 1, 2, 3, 4, 0])

    class Model:
        model: Any
        projection = staticmethod(lambda hidden: hidden)

    module = type(
        "Module", (), {"predictions": lambda self, batch: (logits, target), "model": Model}
    )
    loss, count, sums = focal.micro_loss(module(), None)
    probability = logits.softmax(-1)[range(6), target]
    assert count == 6
    torch.testing.assert_close(loss, -((1 - probability) ** 2 * probability.log()).sum())
    assert sums["loss"] == loss


def test_the_search_ends_early() -> None:
    run("search")
    short = SEARCHES.pop("short")
    [[hypothesis]] = short(RecurrentStep([1], beam=1), torch.tensor([9]), search_config())
    assert len(hypothesis.tokens) <= 3


def test_the_corpus_has_its_files() -> None:
    run("corpus")
    assert PUBLISHED.pop("tiny").file_name("de", "validation") == "dev.de"


def test_the_metric_scores() -> None:
    run("metric")
    config = MetricsConfig(tokenize="13a", lowercase=False)
    [found] = score(["a cat"], ["a cat"], ["chrf++"], config=config)
    assert (found.name, found.value) == ("chrF2++", 100)
    del METRICS["chrf++"]


def test_the_task_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("task")
    monkeypatch.setitem(sys.modules, "my_task", SimpleNamespace(**names))
    assert task_class("my_task:Copying") is names["Copying"]
