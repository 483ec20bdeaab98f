"""The benchmark of training measures equal work, and says so in its last line."""

from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.support.torch_twin import TorchTransformer
from benchmarks.support.training_process import Subject
from benchmarks.support.training_subjects import Products
from benchmarks.training.speed import show, subjects, summary
from tests.helpers.model.models import tiny_transformer
from tests.helpers.runs.runs import SMALL, corpus_overrides
from transformer.cli.config import compose_config, run_settings
from transformer.model.build import build_transformer

pytestmark = pytest.mark.thorough

PROMISED = ["ours", "hf", "torch", "ratio_hf"]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each says of its first three updates, without dropout."""
    folder = tmp_path_factory.mktemp("benchmark")
    run = [*corpus_overrides(folder), *SMALL, "model.norm_order=post", "trainer.max_steps=100"]
    run.append("loss.label_smoothing=0.1")
    said = {}
    for name in ("ours", "hf", "hf_eager", "torch"):
        subject = Subject(name, "float32", kept=True)
        subject.start(folder, run, threads=1)
        subject.ready()
        said[name] = subject.update(3)
        if name == "ours":
            said[name]["products"] = subject.products()
        subject.end()
    return said


def test_all_have_the_same_batches_and_loss(answers: dict[str, dict[str, Any]]) -> None:
    assert len({answer["tokens"] for answer in answers.values()}) == 1
    assert all(answer["seconds"] > 0 and answer["peak"] > 100 for answer in answers.values())
    assert 0 < answers["ours"]["products"] < answers["ours"]["seconds"]
    assert answers["hf"]["loss"] == pytest.approx(answers["ours"]["loss"], rel=1e-5)
    assert answers["hf_eager"]["loss"] == pytest.approx(answers["ours"]["loss"], rel=1e-5)
    # torch.nn.Transformer begins with weights of its own.
    assert answers["torch"]["loss"] == pytest.approx(answers["ours"]["loss"], rel=0.3)


def test_torch_drops_where_ours_and_marian_do() -> None:
    run = run_settings(compose_config("train", ["model=tiny", "model.dropout=0.3"]))
    config = replace(run.model, source_vocab_size=300, target_vocab_size=300)
    twin = TorchTransformer(build_transformer(config))
    active = {
        name.rpartition(".")[2]
        for name, module in twin.named_modules()
        if isinstance(module, nn.Dropout) and module.p > 0
    }
    # Of the embeddings and of each sublayer's output.
    assert active == {"dropout", "dropout1", "dropout2", "dropout3"}
    inner = [name for name, one in twin.named_modules() if isinstance(one, nn.Dropout)]
    assert [name for name in inner if name.endswith(".dropout")] == []
    attentions = [one for one in twin.modules() if isinstance(one, nn.MultiheadAttention)]
    assert len(attentions) == 12
    assert all(one.dropout == 0 for one in attentions)


def test_the_spread_of_turns_and_what_quick_measures() -> None:
    subject = Subject("ours", "float32", kept=True, speeds=[90.0, 100.0, 130.0])
    assert (subject.speed, subject.spread) == (100, 0.2)
    base = ["ours_bfloat16", "ours_float32", "hf_float32", "hf_bfloat16", "torch_float32"]
    (found,) = subjects("base", quick=True)
    assert [subject.key for subject in found] == base
    (found,) = subjects("tiny", quick=True)
    assert [subject.key for subject in found] == [*base, "hf_float32_kept"]


def test_all_matrix_products_are_noted() -> None:
    model = tiny_transformer(dropout=0.1).train()
    tokens = torch.randint(4, 24, (3, 6), generator=torch.Generator().manual_seed(1))
    with FlopCounterMode(display=False) as counted, Products() as products:
        model.logits(model(tokens, tokens)).sum().backward()
    # A product takes two operations for each element of one factor and column of the other.
    operations = (2 * prod(left[1]) * right[1][-1] for left, right in products.factors)
    assert sum(operations) == counted.get_total_flops() > 0


@pytest.mark.parametrize(("size", "quick"), [("tiny", False), ("base", True)])
def test_the_last_line(size: str, quick: bool, capsys: pytest.CaptureFixture[str]) -> None:
    found = list(chain.from_iterable(subjects(size, quick)))
    assert len({subject.key for subject in found}) == len(found)
    for index, subject in enumerate(found):
        subject.speeds = [1.0, 1000.0 - index, 9999.0]
    found[0].loss = 5.0
    found[0].shares = [0.9, 0.7, 0.8]
    values = summary(found, size)
    assert list(values)[:4] == PROMISED
    assert values["ours"] == 1000
    assert values["hf"] == max(values["hf_float32"], values["hf_bfloat16"])
    assert values["ratio_hf"] == round(values["ours"] / values["hf"], 3)
    assert values["torch"] == max(
        values[key] for key in ("torch_float32", "torch_bfloat16") if key in values
    )
    assert ("ratio_hf_kept" in values) == (size == "tiny" or not quick)
    eager = values.get("hf_eager_bfloat16")
    assert values.get("ratio_hf_eager") == (None if quick else round(values["ours"] / eager, 3))
    proxy = 1.25 * values["hf_bfloat16"]
    told = values.get("ratio_eole_bfloat16")
    assert told == (round(values["ours"] / proxy, 3) if size == "base" else None)
    assert values["loss_ours_bfloat16"] == 5
    assert values["products_ours_bfloat16"] == 0.8
    assert "loss_difference" not in values
    found[2].loss = 4.0
    assert summary(found, size)["loss_difference"] == 0.25
    lines = show(found, "a title")
    assert len(lines) == len(found) + 5
    assert "a title" in capsys.readouterr().err
