"""The benchmark of training measures equal work, and says so in its last line."""

from itertools import chain
from typing import Any

import pytest

from benchmarks.support.training_process import Subject
from benchmarks.training.speed import subjects, summary
from tests.helpers.runs.runs import SMALL, corpus_overrides

pytestmark = pytest.mark.thorough


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


def test_the_last_line_has_the_ratios_that_are_promised() -> None:
    measured = list(chain.from_iterable(subjects("tiny", quick=True)))
    for index, subject in enumerate(measured):
        subject.speeds = [1.0, 1000.0 - index, 9999.0]
    values = summary(measured, "tiny")
    assert list(values)[:4] == ["ours", "hf", "torch", "ratio_hf"]
    assert values["ours"] == 1000
    assert values["hf"] == max(values["hf_float32"], values["hf_bfloat16"])
    assert values["ratio_hf"] == round(values["ours"] / values["hf"], 3)
