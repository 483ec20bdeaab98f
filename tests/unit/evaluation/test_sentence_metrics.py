"""The metrics of other tasks equal their definitions, on random and on unusual text."""

import math
import random
import re
import string
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torchmetrics.functional.text as reference
from sacrebleu import corpus_bleu

from tests.helpers.decoding.metrics import RAW
from transformer.common.errors import InputError
from transformer.evaluation.metrics import build_metric, score
from transformer.evaluation.significance import paired_tests
from transformer.settings.evaluation import Resampling
from transformer.settings.metrics import METRICS, MetricsConfig

Texts = Sequence[str]
References = Sequence[tuple[str, ...]]

UNUSUAL = [
    "",
    " ",
    "a",
    "A",
    "the",
    "The dog!",
    "naïve café",
    "你好 世界",
    "нет",
    "क्षि",
    "👍🏽 ok",
    "a  b",
]


def text(seed: int, size: int = 40) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    """Hypotheses, references (one to three) and sources; a third of the hypotheses is correct."""
    draw = random.Random(seed)
    words = ["the", "dog", "Dog", "runs", "a", "x", "é", "to", "u.s.", *UNUSUAL]

    def line() -> str:
        return " ".join(draw.choices(words, k=draw.randint(0, 7)))

    references = [tuple(line() for _ in range(draw.randint(1, 3))) for _ in range(size)]
    references += [(unusual, line()) for unusual in UNUSUAL]
    hypotheses = [draw.choice(texts) if draw.random() < 0.3 else line() for texts in references]
    return hypotheses, references, [line() for _ in references]


def values(hypotheses: Texts, references: Any, *names: str, sources: Any = None) -> list[float]:
    scores = score(hypotheses, references, names, config=RAW, sources=sources)
    return [metric.value for metric in scores]


def distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Levenshtein's recurrence."""
    before = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        now = [i]
        for j, b in enumerate(second, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (a != b)))
        before = now
    return before[-1]


@pytest.mark.parametrize("seed", range(3))
def test_matches_and_edits_are_those_of_torchmetrics_and_of_the_closest_reference(
    seed: int,
) -> None:
    hypotheses, references, _ = text(seed)
    first = [texts[0] for texts in references]
    cer, wer, per = values(hypotheses, first, "cer", "wer", "per")
    assert cer == pytest.approx(100 * float(reference.char_error_rate(hypotheses, first)))
    assert wer == pytest.approx(100 * float(reference.word_error_rate(hypotheses, first)))
    assert per == wer
    exact, ser = values(hypotheses, references, "exact_match", "ser")
    pairs = list(zip(hypotheses, references, strict=True))
    assert exact == pytest.approx(100 * sum(h in texts for h, texts in pairs) / len(pairs))
    words = [(h.split(), [line.split() for line in texts]) for h, texts in pairs]
    assert ser == pytest.approx(100 * sum(h not in texts for h, texts in words) / len(pairs))
    closest = [min((distance(h, line), -len(line)) for line in texts) for h, texts in words]
    edits, words_in_all = (sum(column) for column in zip(*closest, strict=True))
    rate = pytest.approx(-100 * edits / words_in_all)
    assert values(hypotheses, references, "wer", "per") == [rate, rate]
    # One symbol, and nothing at all.
    names = ("exact_match", "cer", "wer", "per", "ser")
    assert values(["a"], ["a"], *names) == [100, 0, 0, 0, 0]
    assert values([""], ["a"], *names) == [0, 100, 100, 100, 100]
    assert values(["ab"], [""], "cer") == [200] and values([""], [""], "cer") == [0]


@pytest.mark.parametrize(
    ("hypotheses", "references", "wer", "cer"),
    [
        # One word too many, one too few, one wrong; blanks are characters, too.
        (["a b c d e x f g h i j"], ["a b c d e f g h i j"], 10, 100 * 2 / 19),
        (["a b c"], ["a b c d"], 25, 100 * 2 / 7),
        (["a x c d"], ["a b c d"], 25, 100 / 7),
        # Sums over the corpus: edits of all lines, words of all references.
        (["a", "b c d e"], ["x", "b c d e"], 20, 100 / 8),
        (["a b c d"], ["a"], 300, 600),
        # The closest reference counts.
        (["a b c"], [("x y z u", "a b d")], 100 / 3, 20),
    ],
)
def test_word_error_rates_of_a_table(
    hypotheses: Texts, references: Any, wer: float, cer: float
) -> None:
    rates = values(hypotheses, references, "wer", "cer")
    assert rates == [pytest.approx(wer), pytest.approx(cer)]


@pytest.mark.parametrize("seed", range(3))
def test_rouge_is_that_of_torchmetrics_and_bleu_takes_all_references(seed: int) -> None:
    hypotheses, references, _ = text(seed)
    names = ("rouge1", "rouge2", "rougeL")
    lists = [list(texts) for texts in references]
    theirs = reference.rouge_score(hypotheses, lists, accumulate="best", rouge_keys=names)
    expected = [pytest.approx(100 * float(theirs[f"{name}_fmeasure"])) for name in names]
    assert values(hypotheses, references, "rouge1", "rouge2", "rougel") == expected
    streams = [[texts[i] if i < len(texts) else None for texts in references] for i in range(3)]
    assert values(hypotheses, references, "bleu") == [corpus_bleu(hypotheses, streams).score]
    # Words of other scripts count with another tokenizer.
    chinese = MetricsConfig(tokenize="zh", lowercase=False)
    [rouge] = score(["你好世界"], ["你好世"], ("rouge1",), config=chinese)
    assert rouge.value == pytest.approx(100 * 6 / 7) and "tok:zh" in rouge.signature
    assert values(["你好世界"], ["你好世"], "rouge1") == [0]


def normalized(answer: str) -> list[str]:
    """As the evaluation script of SQuAD 1.1 does it."""
    plain = "".join(ch for ch in answer.lower() if ch not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def squad_f1(hypothesis: str, reference: str) -> float:
    answer = normalized(hypothesis)
    expected = normalized(reference)
    same = (Counter(answer) & Counter(expected)).total()
    if not answer or not expected:  # of SQuAD 2.0: no answer
        return float(answer == expected)
    return 2 * same / (len(answer) + len(expected))


@pytest.mark.parametrize("seed", range(3))
def test_squad_is_its_definition(seed: int) -> None:
    hypotheses, references, _ = text(seed)
    pairs = list(zip(hypotheses, references, strict=True))
    exact = [any(normalized(h) == normalized(r) for r in texts) for h, texts in pairs]
    f1 = [max(squad_f1(h, r) for r in texts) for h, texts in pairs]
    expected = [pytest.approx(100 * sum(scores) / len(pairs)) for scores in (exact, f1)]
    assert values(hypotheses, references, "squad_exact_match", "squad_f1") == expected


def gleu(sources: Texts, hypotheses: Texts, references: Texts) -> float:
    """Napoles et al. 2016 for one reference each."""
    matched = [0] * 4
    total = [0] * 4
    lengths = [sum(len(line.split()) for line in texts) for texts in (hypotheses, references)]

    def grams(line: str, n: int) -> Counter[tuple[str, ...]]:
        words = line.split()
        return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

    for lines in zip(hypotheses, references, sources, strict=True):
        for n in range(4):
            h, r, s = (grams(line, n + 1) for line in lines)
            penalty = sum(min(h[g], s[g]) for g in s if g not in r)
            matched[n] += max(0, sum((h & r).values()) - penalty)
            total[n] += sum(h.values())
    precision = sum(math.log(m / t) for m, t in zip(matched, total, strict=True)) / 4
    return 100 * math.exp(min(0, 1 - lengths[1] / lengths[0]) + precision)


def test_gleu_is_its_definition_and_draws_among_references() -> None:
    hypotheses, references, sources = text(5, size=60)
    first = [texts[0] for texts in references]
    [single] = values(hypotheses, first, "gleu", sources=sources)
    assert single == pytest.approx(gleu(sources, hypotheses, first)) and single > 0
    drawn = []
    for seed in range(500):
        draw = random.Random(seed * 101)
        chosen = [texts[draw.randint(0, len(texts) - 1)] for texts in references]
        drawn.append(gleu(sources, hypotheses, chosen))
    mean = values(hypotheses, references, "gleu", sources=sources)
    assert mean == [pytest.approx(sum(drawn) / 500)]
    with pytest.raises(InputError, match="Gleu reads the sources"):
        values(hypotheses, references, "gleu")


def lengths(hypotheses: Texts, references: References) -> list[float]:
    return [abs(len(h) - len(r[0])) for h, r in zip(hypotheses, references, strict=True)]


def total_length(hypotheses: Texts, references: References) -> float:
    return float(sum(map(len, hypotheses)))


def tensor(hypotheses: Texts, references: References) -> torch.Tensor:
    return torch.tensor(4.0)


def nan(hypotheses: Texts, references: References) -> list[float]:
    return [0.0, math.nan]


def broken(hypotheses: Texts, references: References) -> float:
    return 1 / len(hypotheses[0][:0])


def no_number(hypotheses: Texts, references: References) -> None:
    pass


def three(hypotheses: Texts, references: References) -> list[float]:
    return [1.0, 2.0, 3.0]


def custom(function: Callable[..., Any]) -> MetricsConfig:
    name = f"{__name__}:{function.__name__}"
    return MetricsConfig("13a", False, custom=name, custom_better="lower", choose="custom")


TWO = (["abc", "a"], [("a", "b"), ("a",)])


def test_a_function_of_the_user_is_a_metric() -> None:
    assert custom(lengths).tested == ["bleu", "chrf", "ter", "custom"]
    [mean] = score(*TWO, ("custom",), config=custom(lengths))
    [whole] = score(*TWO, ("custom",), config=custom(total_length))
    assert (mean.value, whole.value, mean.better) == (1, 4, "lower")
    assert score(*TWO, ("custom",), config=custom(tensor))[0].value == 4
    for function in (no_number, nan, three):
        with pytest.raises(InputError, match=f"{function.__name__} returned .* for 2 sentences; r"):
            score(*TWO, ("custom",), config=custom(function))
    with pytest.raises(InputError, match=r"^metrics\.custom=.*broken raised ZeroDiv.*\.py:\d+\)"):
        score(*TWO, ("custom",), config=custom(broken))
    metric = build_metric("custom", custom(total_length))
    with pytest.raises(InputError, match="one for each sentence"):
        paired_tests(
            [TWO[0]] * 2, TWO[1], [metric], Resampling(bootstrap=10, randomization=10, seed=1)
        )
    for name in ("json:no", None):
        with pytest.raises(InputError, match=f"the metric {name} cannot be imported "):
            build_metric("custom", MetricsConfig("13a", False, custom=name))


def test_comet_takes_the_best_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def predict(self, samples: list[dict[str, str]], **settings: Any) -> SimpleNamespace:
            scores = [float(s["mt"] == s["ref"] and s["src"] == "t") for s in samples]
            return SimpleNamespace(scores=scores)

    comet = ModuleType("comet")
    comet.__spec__ = ModuleSpec("comet", None)
    comet.load_from_checkpoint = lambda path: Model()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "comet", comet)
    (tmp_path / "model.ckpt").touch()
    config = MetricsConfig("13a", False, comet=str(tmp_path / "model.ckpt"))
    references = [("a", "b"), ("b", "a")]
    [found] = score(["abc", "a"], references, ("comet",), config=config, sources=["s", "t"])
    assert (found.name, found.value, config.tested[-1]) == ("COMET", 50, "comet")


@pytest.mark.thorough
def test_paired_tests_of_any_metric_find_a_difference_in_its_direction() -> None:
    references = [(f"{n % 5} {n % 7} {n % 3} a b", "x y z v w") for n in range(60)]
    good = [right[n % 2] for n, right in enumerate(references)]
    bad = [line if n % 3 else "0 0 0 0 0" for n, line in enumerate(good)]
    names = [name for name in METRICS if name not in ("custom", "comet")]
    metrics = [build_metric(name, RAW) for name in names]
    sources = ["0 0 0 0 0"] * 60
    tested = paired_tests(
        [good, bad],
        references,
        metrics,
        Resampling(bootstrap=50, randomization=100, seed=1),
        sources,
    )
    for name, found in zip(names, tested, strict=True):
        worse = found.systems[1]
        assert worse.is_sure and worse.difference is not None, name
        assert (worse.difference > 0) == (found.better == "lower"), name
        assert found.systems[0].score == pytest.approx(
            values(good, references, name, sources=sources)[0]
        )
        assert found.better == RAW.better(name)
