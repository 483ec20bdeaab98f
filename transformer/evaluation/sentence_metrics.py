"""Metrics of sums over sentences, with the interface, signatures and tests of sacreBLEU."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

from transformer.common.version import VERSION
from transformer.settings.metrics import Better, MetricsConfig

Statistics = Callable[[str, Sequence[str], MetricsConfig], tuple[float | int, float | int]]


class SentenceSignature(Signature):
    """Number of references, case, and the details of the metric."""

    def __init__(self, args: dict[str, Any]) -> None:
        # The sources are the first stream of a metric that reads them.
        sources = args["uses_source"] and args["num_refs"] > 0
        super().__init__(args | {"num_refs": args["num_refs"] - sources})
        self.info |= args["details"] | {"version": f"transformer-{VERSION}"}


class SentenceMetric(Metric):
    """A ratio of sums, in percent; with ``uses_source`` the first references are the sources."""

    _SIGNATURE_TYPE = SentenceSignature

    def __init__(
        self,
        config: MetricsConfig,
        name: str,
        details: Mapping[str, str],
        *,
        uses_source: bool = False,
    ) -> None:
        super().__init__()
        self.config, self.name, self.uses_source = config, name, uses_source
        self.details = {"case": "lc" if config.lowercase else "mixed", **details}

    @property
    def better(self) -> Better:
        return self.config.better(self.name.lower())

    def _preprocess_segment(self, sent: str) -> str:
        return sent.lower() if self.config.lowercase else sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        return list(_STATISTICS[self.name](hypothesis, ref_kwargs["references"], self.config))

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score(self.name, float(100 * stats[0] / max(stats[1], 1)))


def _edits(
    kind: str, hypothesis: str, references: Sequence[str], _: MetricsConfig
) -> tuple[int, int]:
    """Edits (Levenshtein 1966) and units of the reference with the fewest, or the longest."""
    from torchmetrics.functional.text import char_error_rate, word_error_rate

    rate = char_error_rate if kind == "CER" else word_error_rate  # phones are words between blanks
    units = len if kind == "CER" else lambda text: len(text.split())
    found = []
    for reference in references:
        total = units(reference)
        edits = abs(units(hypothesis) - total)
        if total and hypothesis != reference:
            edits = round(float(rate([hypothesis], [reference])) * total)
        found.append((edits, total))
    return min(found, key=lambda one: (one[0], -one[1]))


def _rouge(
    key: str, hypothesis: str, references: Sequence[str], config: MetricsConfig
) -> tuple[float, int]:
    """F1 to the best reference (Lin 2004); words are a to z and digits, or of another tokenizer."""
    from torchmetrics.functional.text import rouge_score

    split: dict[str, Any] = {}
    if config.tokenize != "13a":
        words = config.bleu().tokenizer
        split = {"normalizer": lambda text: words(text.lower()), "tokenizer": str.split}
    texts = [hypothesis], [list(references)]
    found = rouge_score(*texts, accumulate="best", rouge_keys=key, **split)
    return float(found[f"{key}_fmeasure"]), 1


def _squad(
    key: str, hypothesis: str, references: Sequence[str], _: MetricsConfig
) -> tuple[float, int]:
    """Exact match or F1 with the best reference, without articles (Rajpurkar et al. 2016)."""
    from torchmetrics.functional.text import squad

    answers: Any = {"answer_start": [0] * len(references), "text": list(references)}
    found = squad([{"prediction_text": hypothesis, "id": ""}], [{"answers": answers, "id": ""}])
    return float(found[key]) / 100, 1


_STATISTICS: dict[str, Statistics] = {
    "exact_match": lambda hypothesis, references, _: (hypothesis in references, 1),
    # Sentence error rate: a line is wrong if its words, or phones, equal those of no reference.
    "SER": lambda line, references, _: (line.split() not in map(str.split, references), 1),
    **{name: partial(_edits, name) for name in ("CER", "WER", "PER")},
    **{name: partial(_rouge, name) for name in ("rouge1", "rouge2", "rougeL")},
    **{f"squad_{key}": partial(_squad, key) for key in ("exact_match", "f1")},
}


def build_sentence_metric(config: MetricsConfig, name: str) -> SentenceMetric:
    """The metric of this name, such as PER or rougeL."""
    details = {} if name in ("exact_match", "SER") else {"torchmetrics": version("torchmetrics")}
    if name in ("CER", "WER", "PER"):
        details |= {"refs": "closest"}
    elif details:
        tokenizer = "a-z0-9" if config.tokenize == "13a" else config.tokenize
        details |= {"case": "lc", "refs": "best"}
        details |= {"tok": tokenizer} if name.startswith("rouge") else {}
    return SentenceMetric(config, name, details)


class Gleu(SentenceMetric):
    """GLEU of corrections: n-grams of a reference, less those of the source that should be gone.

    With several references it is the mean of 500 corpus scores, each of which draws one reference
    for each sentence. Napoles et al. 2015; Napoles et al. 2016, "GLEU Without Tuning".
    """

    ORDER, DRAWS = 4, 500

    def __init__(self, config: MetricsConfig, *, smooth: bool = False) -> None:
        """``smooth`` counts 0 as 1, as the score of a single sentence needs."""
        details = {"smooth": "floor" if smooth else "none"}
        super().__init__(config, "GLEU", details, uses_source=True)

    def _extract_corpus_statistics(
        self, hypotheses: Any, references: Any
    ) -> list[list[float | int]]:
        several = len(references) > 2
        seeded = [random.Random(draw * 101) for draw in range(self.DRAWS if several else 1)]
        found = []
        for hypothesis, texts in zip(hypotheses, self._cache_references(references), strict=True):
            source, *right = texts["references"]
            hypothesis = self._preprocess_segment(hypothesis)
            by_reference = [self._counts(source, hypothesis, one) for one in right]
            drawn = [by_reference[draw.randint(0, len(right) - 1)] for draw in seeded]
            found.append([count for counts in drawn for count in counts])
        return found

    def _counts(self, source: str, hypothesis: str, reference: str) -> list[float | int]:
        """Lengths of hypothesis and reference; matches and n-grams of each order."""
        right, wrong, given = reference.split(), source.split(), hypothesis.split()
        counts: list[float | int] = [len(given), len(right)]
        for order in range(1, self.ORDER + 1):
            wanted, found, former = (_ngrams(words, order) for words in (right, given, wrong))
            gone = Counter({ngram: n for ngram, n in former.items() if ngram not in wanted})
            matches = (found & wanted).total() - (found & gone).total()
            counts += [max(matches, 0), max(len(given) + 1 - order, 0)]
        return counts

    def _compute_score_from_stats(self, stats: Any) -> Score:
        draws = np.asarray(stats, dtype=float).reshape(-1, 2 + 2 * self.ORDER)
        return Score(self.name, 100 * float(np.mean([self._gleu(counts) for counts in draws])))

    def _gleu(self, counts: Any) -> float:
        if self.details["smooth"] == "floor":
            counts = np.where(counts == 0, 1, counts)
        if not counts.all():
            return 0.0
        precision = np.log(counts[2::2] / counts[3::2]).mean()
        return math.exp(min(0.0, 1 - counts[1] / counts[0]) + precision)


def _ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + order]) for i in range(len(words) + 1 - order))
