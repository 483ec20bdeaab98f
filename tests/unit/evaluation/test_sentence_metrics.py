"""The metrics of other tasks equal their definitions, on random and on unusual text."""

import math
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torchmetrics.functional.text as reference
from sacrebleu import corpus_bleu

from tests.helpers.decoding.metrics import RAW
from transformer.common.errors import InputError
from transformer.evaluation.metrics import BUILDERS, build_metric, score
from transformer.evaluation.sentence_metrics import STATISTICS, build_sentence_metric
from transformer.evaluation.significance import paired_tests
from transformer.settings.evaluation import Resampling
from transformer.settings.metrics import METRICS, MetricName, MetricsConfig

Texts = Sequence[str]
References = Sequence[tuple[str, ...]]

UNUSUAL = ["", " ", "A", "The dog!", "naïve café", "你好 世界", "क्षि", "👍🏽 ok", "a  b"]


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


def test_matches_and_edits_are_those_of_torchmetrics_and_of_the_closest_reference() -> None:
    hypotheses, references, _ = text(1, size=120)
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
    assert values(["ab"], [""], "cer") == [200] and values([""], [""], "cer") == [0]
    # The closest reference counts; of equally close ones, the longer.
    assert values(["a b c"], [("x y z u", "a b d")], "wer", "cer") == [pytest.approx(100 / 3), 20]
    assert values(["a b"], [("a", "a b c")], "wer") == [pytest.approx(100 / 3)]


def test_rouge_is_that_of_torchmetrics_and_bleu_takes_all_references() -> None:
    hypotheses, references, _ = text(1)
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


def test_squad_is_its_definition() -> None:
    hypotheses, references, _ = text(1, size=120)
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


@pytest.mark.parametrize("name", sorted(set(METRICS) - {"custom", "comet"}))
def test_the_better_text_has_the_better_value(name: str) -> None:
    good = [f"{n % 5} {n % 7} {n % 3} a b" for n in range(20)]
    bad = [*good[:10], *["0 0 0 0 0"] * 10]
    [best], [worst] = (values(texts, good, name, sources=bad) for texts in (good, bad))
    assert (best > worst) is (RAW.better(name) == "higher")


def test_statistics_of_ones_own_are_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    def longest(hypothesis: str, references: Sequence[str], _: MetricsConfig) -> tuple[int, int]:
        return len(hypothesis), max(map(len, references))

    monkeypatch.setitem(STATISTICS, "Length", longest)
    monkeypatch.setitem(METRICS, "length", MetricName("Length"))
    monkeypatch.setitem(BUILDERS, "length", partial(build_sentence_metric, name="Length"))
    [found] = score(["abc", "a"], [("ab", "abcd"), ("abcd",)], ["length"], config=RAW)
    assert (found.name, found.value, found.better) == ("Length", 50, "higher")
    # Only metrics that torchmetrics computes have its version.
    assert "torchmetrics" not in found.signature
    names = [name for name in METRICS if name not in ("custom", "comet", "gleu")]
    scores = score(["a"], [("a",)], names, config=RAW)
    computed = {name for name, s in zip(names, scores, strict=True) if "torchm" in s.signature}
    squad = {"squad_exact_match", "squad_f1"}
    assert computed == {"cer", "wer", "per", "rouge1", "rouge2", "rougel"} | squad


def lengths(hypotheses: Texts, references: References) -> list[float]:
    return [abs(len(h) - len(r[0])) for h, r in zip(hypotheses, references, strict=True)]


def total_length(hypotheses: Texts, references: References) -> float:
    return float(sum(map(len, hypotheses)))


def nan(hypotheses: Texts, references: References) -> list[float]:
    return [0.0, math.nan]


def broken(hypotheses: Texts, references: References) -> float:
    return 1 / len(hypotheses[0][:0])


def custom(function: Callable[..., Any]) -> MetricsConfig:
    name = f"{__name__}:{function.__name__}"
    return MetricsConfig("13a", False, custom=name, custom_better="lower", choose="custom")


TWO = (["abc", "a"], [("a", "b"), ("a",)])


def test_a_function_of_the_user_is_a_metric() -> None:
    assert custom(lengths).tested == ["bleu", "chrf", "ter", "custom"]
    [mean] = score(*TWO, ("custom",), config=custom(lengths))
    [whole] = score(*TWO, ("custom",), config=custom(total_length))
    assert (mean.value, whole.value, mean.better) == (1, 4, "lower")
    with pytest.raises(InputError, match=r"nan returned .* for 2 sentences"):
        score(*TWO, ("custom",), config=custom(nan))
    with pytest.raises(InputError, match=r"^metrics\.custom=.*broken raised ZeroDiv.*\.py:\d+\)"):
        score(*TWO, ("custom",), config=custom(broken))
    metric = build_metric("custom", custom(total_length))
    with pytest.raises(InputError, match="one for each sentence"):
        paired_tests(
            [TWO[0]] * 2, TWO[1], [metric], Resampling(bootstrap=10, randomization=10, seed=1)
        )
    with pytest.raises(InputError, match="the metric json:no cannot be imported "):
        build_metric("custom", MetricsConfig("13a", False, custom="json:no"))
