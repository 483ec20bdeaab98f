"""Metrics whose score is computed from sums over sentences, behind the interface of sacreBLEU.

So sacreBLEU's signatures and paired tests serve all of them. They know text only. Of several
references the closest counts, or the best.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

import transformer
from transformer.evaluation.metrics import Better, MetricsConfig

TORCHMETRICS = f"torchmetrics-{version('torchmetrics')}"


class SentenceSignature(Signature):
    """References, case, the details of the metric, and the library that computes it."""

    def __init__(self, args: dict[str, Any]) -> None:
        streams = args["num_refs"]
        # The sources are the first stream of a metric that reads them.
        super().__init__(args | {"num_refs": streams - (args["uses_source"] and streams > 0)})
        self.info |= args["details"]
        self.info["version"] = args["version"]


class SentenceMetric(Metric):
    """A ratio in per cent; both of its terms are sums over the sentences.

    Attributes:
        name: In results; in lower case the key of logs.
        uses_source: Whether the first stream of references holds the sources.
    """

    _SIGNATURE_TYPE = SentenceSignature
    name: str

    def __init__(
        self, config: MetricsConfig, *, uses_source: bool = False, **details: str | None
    ) -> None:
        super().__init__()
        self.config, self.uses_source = config, uses_source
        self.details = {"case": "lc" if config.lowercase else "mixed", **details}
        self.version = f"transformer-{transformer.__version__}"

    @property
    def better(self) -> Better:
        """The direction."""
        return self.config.better(self.name.lower())

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Sequence[float | int]:
        """The terms of one sentence."""
        raise NotImplementedError

    def _preprocess_segment(self, sent: str) -> str:
        return sent.lower() if self.config.lowercase else sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, Any]
    ) -> list[float | int]:
        return list(self.statistics(hypothesis, **ref_kwargs))

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score(self.name, float(100 * stats[0] / max(stats[1], 1)))


class ExactMatch(SentenceMetric):
    """Sentences that equal a reference."""

    name = "exact_match"

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Sequence[float | int]:
        """Whether it matches, and 1."""
        return hypothesis in references, 1


class WordError(SentenceMetric):
    """Words whose phones equal those of no reference: 100 minus the exact match of tokens."""

    name = "WER"

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Sequence[float | int]:
        """Whether it is wrong, and 1."""
        return hypothesis.split() not in [text.split() for text in references], 1


class ErrorRate(SentenceMetric):
    """Edits to the closest reference for each of its characters, or of its tokens between blanks.

    Source: Levenshtein 1966, "Binary Codes Capable of Correcting Deletions, Insertions, and
    Reversals".
    """

    def __init__(self, config: MetricsConfig, *, name: str) -> None:
        super().__init__(config, refs="closest")
        self.name, self.version = name, TORCHMETRICS

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Sequence[float | int]:
        """Edits and units of the reference with the fewest edits; of equals the longest."""
        found = [self._edits(hypothesis, reference) for reference in references]
        return min(found, key=lambda one: (one[0], -one[1]))

    def _edits(self, hypothesis: str, reference: str) -> tuple[int, int]:
        from torchmetrics.functional.text import char_error_rate, word_error_rate

        by_character = self.name == "CER"
        found, units = (
            len(text if by_character else text.split()) for text in (hypothesis, reference)
        )
        if hypothesis == reference or not units:
            return abs(found - units), units
        rate = char_error_rate if by_character else word_error_rate
        return round(float(rate([hypothesis], [reference])) * units), units


class Rouge(SentenceMetric):
    """Mean F1 of n-grams, or of the longest common subsequence; the best reference counts.

    Words are runs of a to z and digits, as published; with another tokenizer of sacreBLEU than 13a
    they are its words. Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries".
    """

    def __init__(self, config: MetricsConfig, *, name: str) -> None:
        published = config.tokenize == "13a"
        super().__init__(config, refs="best", tok="a-z0-9" if published else config.tokenize)
        self.name, self.version, self.details["case"] = name, TORCHMETRICS, "lc"
        words = config.bleu().tokenizer
        lowered = {"normalizer": lambda text: words(text.lower()), "tokenizer": str.split}
        self.split: dict[str, Any] = {} if published else lowered

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Sequence[float | int]:
        """F1 and 1."""
        from torchmetrics.functional.text import rouge_score

        texts = [hypothesis], [list(references)]
        found = rouge_score(*texts, accumulate="best", rouge_keys=self.name, **self.split)
        return float(found[f"{self.name}_fmeasure"]), 1


class Squad(SentenceMetric):
    """Exact match or mean F1 of words, without case, punctuation and articles.

    The best reference counts. Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for
    Machine Comprehension of Text".
    """

    def __init__(self, config: MetricsConfig, *, name: str) -> None:
        super().__init__(config, refs="best")
        self.name, self.version, self.details["case"] = name, TORCHMETRICS, "lc"

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Sequence[float | int]:
        """Match or F1, and 1."""
        from torchmetrics.functional.text import squad

        answers: Any = {"answer_start": [0] * len(references), "text": list(references)}
        found = squad([{"prediction_text": hypothesis, "id": ""}], [{"answers": answers, "id": ""}])
        return float(found[self.name.removeprefix("squad_")]) / 100, 1


class Gleu(SentenceMetric):
    """GLEU of corrections: n-grams of a reference, less those of the source that should be gone.

    With several references it is the mean of 500 corpus scores, each of which draws one reference
    for each sentence. Sources: Napoles et al. 2015, "Ground Truth for Grammatical Error Correction
    Metrics"; Napoles et al. 2016, "GLEU Without Tuning".
    """

    name = "GLEU"
    ORDER, DRAWS = 4, 500

    def __init__(self, config: MetricsConfig) -> None:
        super().__init__(config, uses_source=True, smooth="none")

    def smooth(self) -> None:
        """Count 0 as 1, as the score of a single sentence needs."""
        self.details["smooth"] = "floor"

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
