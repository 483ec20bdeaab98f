"""The metrics of other tasks equal those of their sources, on random and on nasty text."""

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

NASTY = [
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
    """Hypotheses, references (one to three) and sources; a third of the hypotheses is right."""
    draw = random.Random(seed)
    words = ["the", "dog", "Dog", "runs", "a", "x", "é", "to", "u.s.", *NASTY]

    def line() -> str:
        return " ".join(draw.choices(words, k=draw.randint(0, 7)))

    references = [tuple(line() for _ in range(draw.randint(1, 3))) for _ in range(size)]
    references += [(one, line()) for one in NASTY]
    right = [draw.choice(one) if draw.random() < 0.3 else line() for one in references]
    return right, references, [line() for _ in references]


def values(hypotheses: Texts, references: Any, *names: str, sources: Any = None) -> list[float]:
    return [one.value for one in score(hypotheses, references, names, config=RAW, sources=sources)]


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Levenshtein's recurrence."""
    before = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        now = [i]
        for j, b in enumerate(other, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (a != b)))
        before = now
    return before[-1]


@pytest.mark.parametrize("seed", range(3))
def test_matches_and_edits_are_those_of_torchmetrics_and_of_the_closest_reference(
    seed: int,
) -> None:
    hypotheses, references, _ = text(seed)
    first = [one[0] for one in references]
    cer, wer, per = values(hypotheses, first, "cer", "wer", "per")
    assert cer == pytest.approx(100 * float(reference.char_error_rate(hypotheses, first)))
    assert wer == pytest.approx(100 * float(reference.word_error_rate(hypotheses, first)))
    assert per == wer
    exact, ser = values(hypotheses, references, "exact_match", "ser")
    found = [one in right for one, right in zip(hypotheses, references, strict=True)]
    assert exact == pytest.approx(100 * sum(found) / len(found))
    words = [[one.split() for one in right] for right in references]
    pairs = list(zip(hypotheses, words, strict=True))
    assert ser == pytest.approx(100 * sum(h.split() not in r for h, r in pairs) / len(found))
    closest = [min((distance(h.split(), w), -len(w)) for w in right) for h, right in pairs]
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
        # One word too many, one too few, one wrong; characters of the blank count, too.
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
    found = values(hypotheses, references, "wer", "cer")
    assert found == [pytest.approx(wer), pytest.approx(cer)]
    if all(isinstance(one, str) for one in references):
        assert wer == pytest.approx(100 * float(reference.word_error_rate(hypotheses, references)))
        assert cer == pytest.approx(100 * float(reference.char_error_rate(hypotheses, references)))


@pytest.mark.parametrize("seed", range(3))
def test_rouge_is_that_of_torchmetrics_and_bleu_takes_all_references(seed: int) -> None:
    hypotheses, references, _ = text(seed)
    names = ("rouge1", "rouge2", "rougeL")
    several = [list(one) for one in references]
    theirs = reference.rouge_score(hypotheses, several, accumulate="best", rouge_keys=names)
    expected = [pytest.approx(100 * float(theirs[f"{name}_fmeasure"])) for name in names]
    assert values(hypotheses, references, "rouge1", "rouge2", "rougel") == expected
    streams = [[one[i] if i < len(one) else None for one in references] for i in range(3)]
    assert values(hypotheses, references, "bleu") == [corpus_bleu(hypotheses, streams).score]
    # Words of other scripts count with another tokenizer.
    chinese = MetricsConfig(tokenize="zh", lowercase=False)
    [one] = score(["你好世界"], ["你好世"], ("rouge1",), config=chinese)
    assert one.value == pytest.approx(100 * 6 / 7) and "tok:zh" in one.signature
    assert values(["你好世界"], ["你好世"], "rouge1") == [0]


def normalized(answer: str) -> list[str]:
    """As the evaluation script of SQuAD 1.1 does it."""
    plain = "".join(ch for ch in answer.lower() if ch not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def squad_f1(hypothesis: str, right: str) -> float:
    given, wanted = normalized(hypothesis), normalized(right)
    same = sum((Counter(given) & Counter(wanted)).values())
    if not given or not wanted:  # of SQuAD 2.0: no answer
        return float(given == wanted)
    return 2 * same / (len(given) + len(wanted))


@pytest.mark.parametrize("seed", range(3))
def test_squad_is_its_own_definition(seed: int) -> None:
    hypotheses, references, _ = text(seed)
    pairs = list(zip(hypotheses, references, strict=True))
    exact = [any(normalized(h) == normalized(r) for r in right) for h, right in pairs]
    f1 = [max(squad_f1(h, r) for r in right) for h, right in pairs]
    expected = [pytest.approx(100 * sum(own) / len(pairs)) for own in (exact, f1)]
    assert values(hypotheses, references, "squad_exact_match", "squad_f1") == expected


def gleu(sources: Texts, hypotheses: Texts, references: Texts) -> float:
    """Napoles et al. 2016 for one reference each."""
    matched, total = [0] * 4, [0] * 4
    lengths = [sum(len(one.split()) for one in texts) for texts in (hypotheses, references)]

    def grams(line: str, n: int) -> Counter[tuple[str, ...]]:
        words = line.split()
        return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

    for source, given, right in zip(sources, hypotheses, references, strict=True):
        for n in range(4):
            h, r, s = (grams(line, n + 1) for line in (given, right, source))
            penalty = sum(min(h[g], s[g]) for g in s if g not in r)
            matched[n] += max(0, sum((h & r).values()) - penalty)
            total[n] += sum(h.values())
    precision = sum(math.log(m / t) for m, t in zip(matched, total, strict=True)) / 4
    return 100 * math.exp(min(0, 1 - lengths[1] / lengths[0]) + precision)


def test_gleu_is_its_definition_and_draws_among_references() -> None:
    hypotheses, references, sources = text(5, size=60)
    first = [one[0] for one in references]
    [one] = values(hypotheses, first, "gleu", sources=sources)
    assert one == pytest.approx(gleu(sources, hypotheses, first)) and one > 0
    drawn = []
    for seed in range(500):
        draw = random.Random(seed * 101)
        chosen = [right[draw.randint(0, len(right) - 1)] for right in references]
        drawn.append(gleu(sources, hypotheses, chosen))
    several = values(hypotheses, references, "gleu", sources=sources)
    assert several == [pytest.approx(sum(drawn) / 500)]
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


def test_own_functions_and_comet_are_metrics_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def own(function: Callable[..., Any]) -> MetricsConfig:
        name = f"{__name__}:{function.__name__}"
        return MetricsConfig("13a", False, custom=name, custom_better="lower", choose="custom")

    texts = ["abc", "a"], [("a", "b"), ("a",)]
    assert own(lengths).tested == ["bleu", "chrf", "ter", "custom"]
    [mean] = score(*texts, ("custom",), config=own(lengths))
    [whole] = score(*texts, ("custom",), config=own(total_length))
    assert (mean.value, whole.value, mean.better) == (1, 4, "lower")
    assert score(*texts, ("custom",), config=own(tensor))[0].value == 4
    for function in (no_number, nan, three):
        with pytest.raises(InputError, match=f"{function.__name__} returned .* for 2 sentences; r"):
            score(*texts, ("custom",), config=own(function))
    with pytest.raises(InputError, match=r"^metrics\.custom=.*broken raised ZeroDiv.*\.py:\d+\)"):
        score(*texts, ("custom",), config=own(broken))
    resampling = Resampling(bootstrap=10, randomization=10, seed=1)
    with pytest.raises(InputError, match="one for each sentence"):
        metric = build_metric("custom", own(total_length))
        paired_tests([texts[0]] * 2, texts[1], [metric], resampling)
    for name in ("json:no", None):
        with pytest.raises(InputError, match=f"the metric {name} cannot be imported .*; give met"):
            build_metric("custom", MetricsConfig("13a", False, custom=name))

    class Model:
        def predict(self, samples: list[dict[str, str]], **settings: Any) -> SimpleNamespace:
            return SimpleNamespace(scores=[float(one["mt"] == one["ref"]) for one in samples])

    comet = ModuleType("comet")
    comet.__spec__ = ModuleSpec("comet", None)
    comet.load_from_checkpoint = lambda path: Model()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "comet", comet)
    (tmp_path / "model.ckpt").touch()
    config = MetricsConfig("13a", False, comet=str(tmp_path / "model.ckpt"))
    [found] = score(*texts, ("comet",), config=config, sources=["s", "t"])
    assert (found.name, found.value, config.tested[-1]) == ("COMET", 50, "comet")


@pytest.mark.thorough
def test_tests_of_any_metric_find_a_difference_in_its_direction() -> None:
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
