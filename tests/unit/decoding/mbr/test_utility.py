"""Utilities are sacreBLEU's sentence scores, or the user's own."""

import random
from pathlib import Path

import pytest
import torch
from sacrebleu import sentence_bleu, sentence_chrf

from transformer.common.errors import InputError
from transformer.decoding.mbr.utility import bleu, chrf, utility_named

WORDS = ["ein", "eine", "Hund", "Hündin", "läuft", "läuft,", "(schnell)", ".", "a", "日本語"]


def phrases(seed: int, count: int = 12) -> list[str]:
    """Phrases of up to nine words, a blank one and an empty one, some words twice."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(count)]
    return [*texts, "", " ", "a", "ein ein ein ein ein", "Ein"]


@pytest.mark.parametrize("seed", range(3))
def test_chrf_is_that_of_sacrebleu_to_the_last_bit(seed: int) -> None:
    texts = phrases(seed)
    wanted = [[sentence_chrf(one, [other]).score for other in texts] for one in texts]
    assert chrf(texts).tolist() == wanted


@pytest.mark.parametrize("seed", range(3))
def test_bleu_is_that_of_sacrebleu_to_the_last_bit(seed: int) -> None:
    texts = phrases(seed)
    wanted = [[sentence_bleu(one, [other]).score for other in texts] for one in texts]
    assert bleu(texts).tolist() == wanted


def test_a_metric_by_its_import_name() -> None:
    """``operator:eq`` is 1 for the same text: the expected utility is the probability itself."""
    values = utility_named("operator:eq")(["a", "b"])
    assert torch.equal(values, torch.eye(2, dtype=torch.float64))


def test_the_hypothesis_comes_first() -> None:
    values = utility_named(f"{__name__}:longer_by")(["abc", "a"])
    assert values.tolist() == [[0.0, 2.0], [-2.0, 0.0]]


def longer_by(hypothesis: str, reference: str) -> int:
    return len(hypothesis) - len(reference)


def undefined(hypothesis: str, reference: str) -> float:
    return float("nan")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("chrF", "is neither chrf nor bleu nor MODULE:CALLABLE"),
        ("no_such_module:metric", "No module named 'no_such_module'"),
        ("math:no_such_metric", "no attribute 'no_such_metric'"),
        ("math", "is neither chrf nor bleu"),
        (":x", "decoding.utility=:x cannot be imported"),
        ("math:pi", "decoding.utility=math:pi is neither chrf nor bleu"),
    ],
)
def test_an_unknown_one_is_one_clear_line(name: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        utility_named(name)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_names_no_callable_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_metric.py").write_text("raise SystemExit('imported')\n")
    for name in ("imported_metric", "imported_metric:"):
        with pytest.raises(InputError, match="is neither chrf nor bleu"):
            utility_named(name)


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(InputError, match="gave a value that is not finite"):
        utility_named(f"{__name__}:undefined")(["a"])
