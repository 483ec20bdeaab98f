"""Metrics that other code computes: a function of the user, and COMET."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from sacrebleu.metrics.base import Score

from transformer.common.errors import InputError
from transformer.evaluation.metrics import MetricsConfig
from transformer.evaluation.sentence_metrics import SentenceMetric


class Custom(SentenceMetric):
    """``metrics.custom=MODULE:FUNCTION``, called with all hypotheses and their references.

    It returns one number for the text, or one for each sentence, whose mean is the score and which
    paired tests need.
    """

    def __init__(self, config: MetricsConfig) -> None:
        module, _, function = (config.custom or "").partition(":")
        super().__init__(config, "custom", {"function": f"{module}.{function}"})
        self.of_sentences = True
        try:
            self.function = getattr(import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(
                f"metrics.custom={config.custom} cannot be imported ({error}); give MODULE:FUNCTION"
            ) from error

    def _extract_corpus_statistics(
        self, hypotheses: Any, references: Any
    ) -> list[list[float | int]]:
        right = [tuple(one["references"]) for one in self._cache_references(references)]
        values = self.function([self._preprocess_segment(one) for one in hypotheses], right)
        self.of_sentences = hasattr(values, "__len__")
        found = [[float(one), 1] for one in (values if self.of_sentences else [values])]
        if self.of_sentences and len(found) != len(right):
            raise InputError(
                f"metrics.custom={self.details['function']} gave {len(found)} numbers for "
                f"{len(right)} sentences; return one for each, or one for all"
            )
        return found

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


class Comet(SentenceMetric):
    """COMET times 100, of a model file; the best reference counts.

    Source: Rei et al. 2020, "COMET: A Neural Framework for MT Evaluation".
    """

    def __init__(self, config: MetricsConfig) -> None:
        file = Path(config.comet or "")
        model = str(file).replace(":", "-")
        super().__init__(config, "COMET", {"refs": "best", "model": model}, uses_source=True)
        try:
            self.package = import_module("comet")
        except ImportError as error:
            raise InputError(
                "COMET needs the package unbabel-comet: pip install -e '.[comet]'"
            ) from error
        if not file.is_file():
            raise InputError(f"metrics.comet={config.comet} is not there; give the file of a model")
        self.file, self.model = file, cast(Any, None)
        self.scores: dict[tuple[str, str, str], float] = {}

    def _extract_corpus_statistics(
        self, hypotheses: Any, references: Any
    ) -> list[list[float | int]]:
        texts = zip(hypotheses, self._cache_references(references), strict=True)
        found = [(one, about["references"]) for one, about in texts]
        triples = [[(src, one, ref) for ref in right] for one, (src, *right) in found]
        new = {triple for line in triples for triple in line} - self.scores.keys()
        self._predict(sorted(new))
        return [[max(self.scores[triple] for triple in line), 1] for line in triples]

    def _predict(self, triples: Sequence[tuple[str, str, str]]) -> None:
        """Score triples of source, hypothesis and reference; the model is loaded once."""
        if not triples:
            return
        if self.model is None:
            self.model = self.package.load_from_checkpoint(str(self.file))
        samples = [dict(zip(("src", "mt", "ref"), triple, strict=True)) for triple in triples]
        predicted = self.model.predict(samples, gpus=0, progress_bar=False)
        self.scores |= zip(triples, map(float, predicted.scores), strict=True)
