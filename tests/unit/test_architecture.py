"""The page of the architecture: what it adds to the program works."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.decoding.steps import RecurrentStep, search_config
from tests.helpers.decoding.translators import tiny_translator
from transformer.common.errors import InputError
from transformer.data.corpora.catalog import PUBLISHED
from transformer.decoding.batched_search import SEARCHES
from transformer.evaluation.metrics import METRICS, MetricsConfig, score
from transformer.interchange.export_formats import FORMATS
from transformer.interchange.expressible import check_formula
from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.positions.alibi import AlibiBias
from transformer.model.attention.record_weights import recording
from transformer.model.attention.scaled_dot_product import attend_with_weights, eager
from transformer.tasks.registry import task_class

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
EXAMPLES = dict(
    re.findall(r"^\*\*An? (\w+)\*\*.*?```python\n(.*?)```", PAGE.read_text("utf-8"), re.M | re.S)
)


def run(name: str) -> dict[str, Any]:
    """The names that an example defines."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(EXAMPLES[name], f"architecture.md, {name}", "exec"), names)
    return names


def test_there_is_one_of_each() -> None:
    assert list(EXAMPLES) == [
        *("loss", "attention", "search", "corpus", "metric", "format", "verb", "task")
    ]
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


def test_the_formula_of_an_attention_computes_and_is_recorded() -> None:
    attention = run("attention")["attention"]
    hidden, positions = torch.randn(1, 4, 16), torch.arange(4)
    bias = AttentionBias(None, positions, positions, causal=True, bias=AlibiBias(2))
    queries, keys, values = attention.project(hidden, hidden, hidden, bias)
    expected = attention.output(
        eager(2 * queries, keys, values, bias, 0.0).transpose(1, 2).flatten(-2)
    )
    torch.testing.assert_close(attention(hidden, hidden, hidden, bias), expected)
    with recording([attention]) as weights:
        torch.testing.assert_close(attention(hidden, hidden, hidden, bias), expected)
    seen = attend_with_weights(2 * queries, keys, values, bias, 0.0)[1]
    torch.testing.assert_close(weights, [seen])


def test_a_program_without_the_formula_is_refused() -> None:
    model = tiny_translator().model
    model.decoder.layers[0].cross_attention.formula = run("attention")["sharper"]
    with pytest.raises(InputError, match=r"decoder\.layers\.0\.cross_attention .* CTranslate2"):
        check_formula(model, "CTranslate2")


def test_the_format_is_written(tmp_path: Path) -> None:
    run("format")
    written = FORMATS.pop("vocabulary").write(tiny_translator(), {}, tmp_path, OmegaConf.create())
    assert json.loads((tmp_path / "vocabulary.json").read_text()) == written


def test_the_verb_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "best.ckpt").touch()
    run("verb")["run"](OmegaConf.create({"checkpoint": str(tmp_path / "best.ckpt")}), [])
    assert capsys.readouterr().out == f"{tmp_path}/best.ckpt\n"


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
