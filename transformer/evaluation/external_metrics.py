"""Metrics that other code computes: a function of the user, and COMET."""

from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Score

from transformer.common.errors import InputError
from transformer.common.own_code import own_module
from transformer.evaluation.sentence_metrics import SentenceMetric
from transformer.settings.metrics import MetricsConfig


class Custom(SentenceMetric):
    """``metrics.custom=MODULE:FUNCTION``: one number for the text, or one for each sentence."""

    def __init__(self, config: MetricsConfig) -> None:
        module, _, function = (config.custom or "").partition(":")
        super().__init__(config, "custom", {"function": f"{module}.{function}"})
        self.of_sentences = True
        try:
            imported = own_module(module)
            self.file, self.function = vars(imported).get("__file__"), getattr(imported, function)
        except Exception as error:  # the module is the user's
            raise InputError(
                f"the metric {config.custom} cannot be imported ({error}); give "
                "metrics=MODULE:FUNCTION of a module in this folder or on PYTHONPATH"
            ) from error

    def _extract_corpus_statistics(
        self, hypotheses: Any, references: Any
    ) -> list[list[float | int]]:
        right = [tuple(one["references"]) for one in self._cache_references(references)]
        try:
            given = self.function([self._preprocess_segment(one) for one in hypotheses], right)
        except Exception as error:
            frames = extract_tb(error.__traceback__)
            own = [one for one in frames if one.filename == self.file] or frames
            raise InputError(
                f"metrics.custom={self.details['function']} raised {type(error).__name__}: {error} "
                f"({own[-1].filename}:{own[-1].lineno}); mend the function"
            ) from error
        values = _numbers(given)
        self.of_sentences = values.ndim > 0
        if values.shape not in ((), (len(right),)) or np.isnan(values).any():
            raise InputError(
                f"metrics.custom={self.details['function']} returned {str(given)[:60]!r} for "
                f"{len(right)} sentences; return a number for each, or one for all, and no NaN"
            )
        return [[one, 1] for one in values.flatten().tolist()]

    def _aggregate_and_compute(self, stats: Any) -> Score:
        if not self.of_sentences:
            return Score(self.name, stats[0][0])
        return super()._aggregate_and_compute(stats)

    def _compute_score_from_stats(self, stats: Any) -> Score:
        if not self.of_sentences:
            raise InputError(
                f"metrics.custom={self.details['function']} returns one number for a text; to "
                "compare systems it must return one for each sentence"
            )
        return Score(self.name, float(stats[0] / stats[1]))


def _numbers(given: Any) -> Any:
    """One number or several; a tensor of one number has no items. Of others nothing that fits."""
    for convert in (lambda: [float(one) for one in given], lambda: float(given)):
        with suppress(TypeError, ValueError):
            return np.array(convert())
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
        samples, counts = [], []
        texts = zip(hypotheses, self._cache_references(references), strict=True)
        for hypothesis, about in texts:
            source, *right = about["references"]
            samples += [{"src": source, "mt": hypothesis, "ref": one} for one in right]
            counts.append(len(right))
        scores = iter(_load(self.file).predict(samples, gpus=0, progress_bar=False).scores)
        return [[max(map(float, islice(scores, count))), 1] for count in counts]


@cache
def _load(file: str) -> Any:
    return import_module("comet").load_from_checkpoint(file)
