"""Metrics of sums over sentences, with the interface, signatures and tests of sacreBLEU.

Some are computed by other code: torchmetrics, a function of the user, and COMET.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

from transformer.common.errors import InputError
from transformer.common.own_code import own_module
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
        self.config = config
        self.name = name
        self.uses_source = uses_source
        self.details = {"case": "lc" if config.lowercase else "mixed", **details}

    @property
    def better(self) -> Better:
        return self.config.better(self.name.lower())

    def _preprocess_segment(self, sent: str) -> str:
        return sent.lower() if self.config.lowercase else sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        return list(STATISTICS[self.name](hypothesis, ref_kwargs["references"], self.config))

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score(self.name, float(100 * stats[0] / max(stats[1], 1)))


def _edits(
    kind: str, hypothesis: str, references: Sequence[str], _: MetricsConfig
) -> tuple[int, int]:
    """Edits (Levenshtein 1966) and units of the reference with the fewest, or the longest."""
    from torchmetrics.functional.text import char_error_rate, word_error_rate

    def units(text: str) -> int:
        # Phones, like words, are between blanks.
        return len(text if kind == "CER" else text.split())

    rate = char_error_rate if kind == "CER" else word_error_rate
    counts = []
    for reference in references:
        total = units(reference)
        edits = abs(units(hypothesis) - total)
        if total and hypothesis != reference:
            edits = round(float(rate([hypothesis], [reference])) * total)
        counts.append((edits, total))
    return min(counts, key=lambda count: (count[0], -count[1]))


def _rouge(
    key: str, hypothesis: str, references: Sequence[str], config: MetricsConfig
) -> tuple[float, int]:
    """F1 to the best reference (Lin 2004); words are a to z and digits, or of another tokenizer."""
    from torchmetrics.functional.text import rouge_score

    split: dict[str, Any] = {}
    if config.tokenize != "13a":
        words = config.bleu().tokenizer
        split = {"normalizer": lambda text: words(text.lower()), "tokenizer": str.split}
    scores = rouge_score(
        [hypothesis], [list(references)], accumulate="best", rouge_keys=key, **split
    )
    return float(scores[f"{key}_fmeasure"]), 1


def _squad(
    key: str, hypothesis: str, references: Sequence[str], _: MetricsConfig
) -> tuple[float, int]:
    """Exact match or F1 with the best reference, without articles (Rajpurkar et al. 2016)."""
    from torchmetrics.functional.text import squad

    answers: Any = {"answer_start": [0] * len(references), "text": list(references)}
    scores = squad([{"prediction_text": hypothesis, "id": ""}], [{"answers": answers, "id": ""}])
    return float(scores[key]) / 100, 1


def _exact_match(hypothesis: str, references: Sequence[str], _: MetricsConfig) -> tuple[bool, int]:
    return hypothesis in references, 1


def _sentence_error(
    hypothesis: str, references: Sequence[str], _: MetricsConfig
) -> tuple[bool, int]:
    """Whether the words, or phones, of a line equal those of no reference."""
    return hypothesis.split() not in map(str.split, references), 1


STATISTICS: dict[str, Statistics] = {
    "exact_match": _exact_match,
    "SER": _sentence_error,
    "CER": partial(_edits, "CER"),
    "WER": partial(_edits, "WER"),
    "PER": partial(_edits, "PER"),
    "rouge1": partial(_rouge, "rouge1"),
    "rouge2": partial(_rouge, "rouge2"),
    "rougeL": partial(_rouge, "rougeL"),
    "squad_exact_match": partial(_squad, "exact_match"),
    "squad_f1": partial(_squad, "f1"),
}
"""By the name of a metric in tables: two numbers of a sentence, whose sums are divided."""


def build_sentence_metric(config: MetricsConfig, name: str) -> SentenceMetric:
    """The metric of this name, such as PER or rougeL."""
    details: dict[str, str] = {}
    if name in ("CER", "WER", "PER") or name.startswith(("rouge", "squad")):
        details["torchmetrics"] = version("torchmetrics")
    if name in ("CER", "WER", "PER"):
        details["refs"] = "closest"
    elif name.startswith(("rouge", "squad")):
        details |= {"case": "lc", "refs": "best"}
    if name.startswith("rouge"):
        details["tok"] = "a-z0-9" if config.tokenize == "13a" else config.tokenize
    return SentenceMetric(config, name, details)


class Gleu(SentenceMetric):
    """GLEU of corrections: n-grams of a reference, less those of the source that should be gone.

    With several references it is the mean of 500 corpus scores, each of which draws one reference
    for each sentence. Napoles et al. 2015; Napoles et al. 2016, "GLEU Without Tuning".
    """

    ORDER = 4
    DRAWS = 500

    def __init__(self, config: MetricsConfig, *, smooth: bool = False) -> None:
        """``smooth`` counts 0 as 1, as the score of a single sentence needs."""
        details = {"smooth": "floor" if smooth else "none"}
        super().__init__(config, "GLEU", details, uses_source=True)

    def _extract_corpus_statistics(
        self, hypotheses: Any, references: Any
    ) -> list[list[float | int]]:
        # The first stream has the sources.
        draws = self.DRAWS if len(references) > 2 else 1
        generators = [random.Random(draw * 101) for draw in range(draws)]
        statistics = []
        for hypothesis, texts in zip(hypotheses, self._cache_references(references), strict=True):
            source, *sentence_references = texts["references"]
            hypothesis = self._preprocess_segment(hypothesis)
            by_reference = [self._counts(source, hypothesis, text) for text in sentence_references]
            drawn = [by_reference[g.randint(0, len(by_reference) - 1)] for g in generators]
            statistics.append([count for counts in drawn for count in counts])
        return statistics

    def _counts(self, source: str, hypothesis: str, reference: str) -> list[float | int]:
        """Lengths of hypothesis and reference; matches and n-grams of each order."""
        words = hypothesis.split()
        counts: list[float | int] = [len(words), len(reference.split())]
        for order in range(1, self.ORDER + 1):
            written = _ngrams(words, order)
            in_reference = _ngrams(reference.split(), order)
            in_source = _ngrams(source.split(), order)
            # N-grams of the source that a correction must not keep.
            wrong = Counter({k: n for k, n in in_source.items() if k not in in_reference})
            matches = (written & in_reference).total() - (written & wrong).total()
            counts += [max(matches, 0), max(len(words) + 1 - order, 0)]
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


class Custom(SentenceMetric):
    """``metrics.custom=MODULE:FUNCTION``: one number for the text, or one for each sentence."""

    def __init__(self, config: MetricsConfig) -> None:
        module, _, function = (config.custom or "").partition(":")
        super().__init__(config, "custom", {"function": f"{module}.{function}"})
        self.by_sentence = True
        try:
            imported = own_module(module)
            self.file = vars(imported).get("__file__")
            self.function = getattr(imported, function)
        except Exception as error:  # the module is the user's
            raise InputError(
                f"the metric {config.custom} cannot be imported ({error}); give "
                "metrics=MODULE:FUNCTION of a module in this folder or on PYTHONPATH"
            ) from error

    def _extract_corpus_statistics(
        self, hypotheses: Any, references: Any
    ) -> list[list[float | int]]:
        texts = [tuple(info["references"]) for info in self._cache_references(references)]
        try:
            returned = self.function([self._preprocess_segment(h) for h in hypotheses], texts)
        except Exception as error:
            frames = extract_tb(error.__traceback__)
            # The last line of the user's file, if the error passed through it.
            of_user = [frame for frame in frames if frame.filename == self.file] or frames
            raise InputError(
                f"metrics.custom={self.details['function']} raised {type(error).__name__}: {error} "
                f"({of_user[-1].filename}:{of_user[-1].lineno}); mend the function"
            ) from error
        values = _numbers(returned)
        self.by_sentence = values.ndim > 0
        if values.shape not in ((), (len(texts),)) or np.isnan(values).any():
            raise InputError(
                f"metrics.custom={self.details['function']} returned {str(returned)[:60]!r} for "
                f"{len(texts)} sentences; return a number for each, or one for all, and no NaN"
            )
        return [[value, 1] for value in values.flatten().tolist()]

    def _aggregate_and_compute(self, stats: Any) -> Score:
        if not self.by_sentence:
            return Score(self.name, stats[0][0])
        return super()._aggregate_and_compute(stats)

    def _compute_score_from_stats(self, stats: Any) -> Score:
        if not self.by_sentence:
            raise InputError(
                f"metrics.custom={self.details['function']} returns one number for a text; to "
                "compare systems it must return one for each sentence"
            )
        return Score(self.name, float(stats[0] / stats[1]))


def _numbers(returned: Any) -> Any:
    """An array of the returned numbers, or of one number; of anything else a matrix without any."""
    with suppress(TypeError, ValueError):
        return np.array([float(value) for value in returned])
    with suppress(TypeError, ValueError):
        return np.array(float(returned))
    return np.empty((0, 0))


class Comet(SentenceMetric):
    """COMET times 100, of a model file; the best reference counts (Rei et al. 2020)."""

    def __init__(self, config: MetricsConfig) -> None:
        self.file = config.comet or ""
        details = {"refs": "best", "model": self.file.replace(":", "-")}
        super().__init__(config, "COMET", details, uses_source=True)
        if find_spec("comet") is None or not Path(self.file).is_file():
            raise InputError(
                f"metrics.comet={self.file} needs this file of a model, and the package "
                "unbabel-comet: pip install -e '.[comet]'"
            )

    def _extract_corpus_statistics(
        self, hypotheses: Any, references: Any
    ) -> list[list[float | int]]:
        samples = []
        counts = []
        for hypothesis, info in zip(hypotheses, self._cache_references(references), strict=True):
            source, *sentence_references = info["references"]
            samples += [
                {"src": source, "mt": hypothesis, "ref": text} for text in sentence_references
            ]
            counts.append(len(sentence_references))
        scores = iter(_load(self.file).predict(samples, gpus=0, progress_bar=False).scores)
        return [[max(map(float, islice(scores, count))), 1] for count in counts]


@cache
def _load(file: str) -> Any:
    return import_module("comet").load_from_checkpoint(file)
