"""The recipes of CONTRIBUTING.md: what they add to the program works."""

import ast
import json
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.decoding.translators import tiny_translator
from tests.helpers.model.models import tiny_config
from transformer.__main__ import VERBS, main
from transformer.checkpoint.checkpoint import PORTABLE, Portable, require_translation
from transformer.cli import arguments
from transformer.cli.arguments import config_folder
from transformer.cli.config import SETTINGS, compose_config
from transformer.commands import export
from transformer.common.errors import InputError
from transformer.common.files import CONFIG_DIR
from transformer.common.schema import typed
from transformer.data.corpora.catalog import PUBLISHED
from transformer.decoding.batched_search import SEARCHES
from transformer.evaluation.metrics import BUILDERS, score
from transformer.interchange.export_formats import FORMATS
from transformer.interchange.verification import check_formula
from transformer.model import build
from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.record_weights import recording
from transformer.model.attention.scaled_dot_product import attend_with_weights, eager
from transformer.model.build import build_transformer
from transformer.model.positions.alibi import AlibiBias
from transformer.settings.decoding import SearchConfig, SearchName
from transformer.settings.metrics import METRICS, MetricsConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig
from transformer.tasks.registry import TASKS, task_class

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
TEXT = PAGE.read_text("utf-8")
EXAMPLES = dict(re.findall(r"^\*\*An? (\w+)\*\*.*?```python\n(.*?)```", TEXT, re.M | re.S))
METRIC_YAML, VERB_YAML = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
[SETTING] = re.findall(r"`SETTINGS`: `\"(\w+)\": \"(.*?)\"`", TEXT)
ENTRIES = re.findall(r"of `(?:VERBS|TASKS)`: `(.*?)`", TEXT)


def run(name: str, **renamed: str) -> dict[str, Any]:
    """The names that an example defines; ``renamed`` texts of it are replaced."""
    names: dict[str, Any] = {"__name__": "example"}
    text = EXAMPLES[name]
    for old, new in renamed.items():
        text = text.replace(old, new)
    exec(compile(text, f"CONTRIBUTING.md, {name}", "exec"), names)
    return names


@pytest.mark.parametrize("name", [*EXAMPLES, "architecture"])
def test_a_recipe_names_files_and_what_to_test_against(name: str) -> None:
    """``tests/unit/test_docs.py`` checks that the linked files exist; here those in code spans."""
    [recipe] = re.findall(rf"^(\*\*An? {name}\*\*.*?)(?=^\*\*An? |\Z)", TEXT, re.M | re.S)
    table = re.findall(r"^\| (.*?) \| .* \|$", recipe, re.M)
    assert table[-1].startswith("test")
    root = PAGE.parent
    row_of_file = r"^\| \[.*?\]\((transformer/\S+?\.py)\) \| (.*) \|$"
    for file, what in re.findall(row_of_file, recipe, re.M):
        for name in re.findall(r"(?:in|of) `(\w+)`", what):
            assert re.search(rf"\b{name}\b", (root / file).read_text("utf-8")), (file, name)
    for path in re.findall(r"`((?:conf|transformer|data|tests)/[\w./]+)`", recipe):
        assert (root / path).exists(), path


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
    bias = AttentionContext(None, positions, positions, causal=True, bias=AlibiBias(2))
    queries, keys, values = attention.project(hidden, hidden, hidden, bias)
    expected = attention.output(
        eager(2 * queries, keys, values, bias, 0.0).transpose(1, 2).flatten(-2)
    )
    torch.testing.assert_close(attention.attend(hidden, hidden, hidden, bias), expected)
    with recording([attention]) as weights:
        torch.testing.assert_close(attention.attend(hidden, hidden, hidden, bias), expected)
    seen = attend_with_weights(2 * queries, keys, values, bias, 0.0)[1]
    torch.testing.assert_close(weights, [seen])


def test_the_formula_of_an_attention_computes_in_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.tensor([[4, 5, 6, 2]])
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(build_transformer(tiny_config()).eval())
        new = build.AttentionFunctions(run("attention")["sharper"], None, build.prepare_dense)
        monkeypatch.setattr(build, "attention_functions", lambda config, new=new: new)
    usual, sharper = models
    assert not torch.equal(usual(tokens, tokens), sharper(tokens, tokens))
    for attention in filter(lambda module: isinstance(module, MultiHeadAttention), usual.modules()):
        attention.query.weight.data *= 2
        attention.query.bias.data *= 2
    torch.testing.assert_close(sharper(tokens, tokens), usual(tokens, tokens))


def test_a_program_without_the_formula_is_refused() -> None:
    model = tiny_translator().model
    model.decoder.layers[0].cross_attention.formula = run("attention")["sharper"]
    with pytest.raises(InputError, match=r"decoder\.layers\.0\.cross_attention .* CTranslate2"):
        check_formula(model, "CTranslate2")


def test_the_format_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        export, "load_translator", lambda *_, **__: (tiny_translator(), RunConfig())
    )
    monkeypatch.chdir(tmp_path)
    call = ["export", "checkpoint=run", "format=vocabulary", "output=new"]
    assert main(call) == 2
    run("format")
    try:
        assert main(call) == 0
    finally:
        del FORMATS["vocabulary"]
    assert json.loads((tmp_path / "new" / "vocabulary.json").read_text()) == {"target": 310}


def test_the_verb_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(config_folder(), tmp_path / "conf")
    (tmp_path / "conf" / "where.yaml").write_text(VERB_YAML)
    monkeypatch.setattr(arguments, "PACKAGE", tmp_path)
    [(verb, (path, description))] = ast.literal_eval(f"{{{ENTRIES[0]}}}").items()
    monkeypatch.setitem(VERBS, verb, (path, description))
    module, settings = f"transformer.cli.{path.partition(':')[0]}", "transformer.settings.where"
    for name in (module, settings):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**run("command")))
    monkeypatch.setitem(SETTINGS, *SETTING)
    (tmp_path / "best.ckpt").touch()
    assert main(["where", f"checkpoint={tmp_path}/best.ckpt"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/best.ckpt\n"
    assert main(["where", "--help"]) == 0
    assert capsys.readouterr().out == f"# where: {description}\n{VERB_YAML}"


def test_the_search_ends_early() -> None:
    @dataclass(frozen=True, kw_only=True)
    class WithShort(SearchConfig):
        algorithm: Literal[SearchName, "short"] = "short"  # type: ignore[assignment]

    with pytest.raises(InputError, match=r"decoding\.algorithm"):
        typed(SearchConfig, {"algorithm": "short"}, "decoding")
    config = typed(WithShort, {"beam_size": 1}, "decoding")
    run("search")
    try:
        [translation] = replace(tiny_translator(), search=config).translate(["the dog runs"])
    finally:
        del SEARCHES["short"]
    assert len(translation.tokens) <= 3


def test_the_corpus_has_its_files() -> None:
    run("corpus")
    assert PUBLISHED.pop("tiny").file_name("de", "validation") == "dev.de"


def test_the_metric_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other names than the recipe's: the package has those once a reader has followed it.
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "renamed.yaml").write_text(METRIC_YAML.replace("chrf++", "renamed"))
    monkeypatch.setenv(CONFIG_DIR, str(tmp_path))
    values = OmegaConf.to_container(compose_config("train", ["metrics=renamed"]).metrics)
    with pytest.raises(InputError, match=r"metric renamed is unknown"):
        typed(MetricsConfig, values, "metrics")
    run("metric", **{"chrf++": "renamed"})
    try:
        config = typed(MetricsConfig, values, "metrics")
        [found, _] = score(["a cat"], ["a cat"], config=config)
    finally:
        del METRICS["renamed"], BUILDERS["renamed"]
    assert (config.choose, found.name, found.value) == ("renamed", "chrF2++", 100)


def test_the_task_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("task")
    [(name, path)] = ast.literal_eval(f"{{{ENTRIES[1]}}}").items()
    monkeypatch.setitem(sys.modules, path.partition(":")[0], SimpleNamespace(**names))
    monkeypatch.setitem(TASKS, name, path)
    config = compose_config("train", ["task=copying"])
    assert task_class(config.task) is names["Copying"]
    trained = RunConfig(task=config.task, model=ModelConfig().sized(9, 9))
    require_translation({PORTABLE: Portable(trained, {}).to_plain()}, Path("best.ckpt"))
