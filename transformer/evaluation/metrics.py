"""Metrics by name, BLEU, chrF and TER by sacreBLEU, and scores with signatures (Post 2018)."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pkgutil import resolve_name
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from transformer.common.errors import InputError
from transformer.data.text.phrases import occurs
from transformer.settings.metrics import METRICS, Better, MetricsConfig, unknown_metric

DECIMALS = 2


def _imported(factory: str, *names: str, **settings: bool) -> Callable[[MetricsConfig], Metric]:
    path = f"transformer.evaluation.{factory}"
    return lambda config: resolve_name(path)(config, *names, **settings)


_sentence = partial(_imported, "sentence_metrics:build_sentence_metric")

BUILDERS: dict[str, Callable[[MetricsConfig], Metric]] = {
    "bleu": MetricsConfig.bleu,
    "chrf": lambda config: CHRF(lowercase=config.lowercase),
    "ter": lambda _: TER(),
    "exact_match": _sentence("exact_match"),
    "cer": _sentence("CER"),
    "wer": _sentence("WER"),
    "per": _sentence("PER"),
    "ser": _sentence("SER"),
    "rouge1": _sentence("rouge1"),
    "rouge2": _sentence("rouge2"),
    "rougel": _sentence("rougeL"),
    "squad_exact_match": _sentence("squad_exact_match"),
    "squad_f1": _sentence("squad_f1"),
    "gleu": _imported("sentence_metrics:Gleu"),
    "custom": _imported("external_metrics:Custom"),
    "comet": _imported("external_metrics:Comet"),
}


@dataclass(frozen=True)
class Score:
    """A score of a model on one text.

    Attributes:
        name: As sacreBLEU writes it (BLEU, chrF2, TER), or exact_match, AER, f1_NOUN and so on.
        value: In percent for text, accuracy and F1; from 0 to 1 for alignment; 1 or more for
            perplexity.
        signature: Settings and, for metrics of text, the version of the program.
        fields: The values of ``to_json``, such as ``score`` (the rounded value) and precision.
        decimals: Of the value in tables.
        better: Only set for metrics of ``METRICS``.
    """

    name: str
    value: float
    signature: str
    fields: dict[str, Any] = field(repr=False)
    decimals: int = DECIMALS
    better: Better = "higher"

    @classmethod
    def of(
        cls, name: str, value: float, signature: str, *, decimals: int = DECIMALS, **more: Any
    ) -> "Score":
        """A score whose fields are its name, its rounded value, its signature, and ``more``."""
        rounded = round(value, decimals)
        fields = {"name": name, "score": rounded, "signature": signature, **more}
        return cls(name, value, signature, fields, decimals)

    def to_json(self) -> dict[str, Any]:
        """The object that ``sacrebleu --format json --width 2`` prints, or one like it."""
        return dict(self.fields)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    metrics: Sequence[str] | None = None,
    *,
    config: MetricsConfig,
    sources: Sequence[str] | None = None,
) -> list[Score]:
    """Score hypotheses against one or more references each, in the same order.

    ``metrics`` are names in ``METRICS``; None: the metrics of a test. Only GLEU and COMET read
    sources. Raises InputError without hypotheses, or if the numbers of texts differ.
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses and {len(references)} references cannot be compared; "
            "give one reference or more for each hypothesis, in the same order"
        )
    scores = []
    for name in config.tested if metrics is None else metrics:
        metric = build_metric(name, config)
        streams = reference_streams(metric, references, sources)
        result = metric.corpus_score(list(hypotheses), streams)
        signature, better = str(metric.get_signature()), config.better(name)
        fields = json.loads(result.format(width=DECIMALS, signature=signature, is_json=True))
        scores.append(Score(result.name, float(result.score), signature, fields, better=better))
    return scores


def reference_streams(
    metric: Metric, references: Sequence[str | Sequence[str]], sources: Sequence[str] | None
) -> list[list[Any]]:
    """The first references, the second (None: no more) and so on; before them sources if read."""
    several = [(one,) if isinstance(one, str) else tuple(one) for one in references]
    streams: list[list[Any]] = list(map(list, zip_longest(*several)))
    if not getattr(metric, "uses_source", False):
        return streams
    if sources is None:
        raise InputError(f"{type(metric).__name__} reads the sources, which are missing; give them")
    return [list(sources), *streams]


def build_metric(name: str, config: MetricsConfig, *, of_sentence: bool = False) -> Metric:
    """Build a metric by its name; BLEU and GLEU have a variant for single sentences."""
    if name not in METRICS:
        raise InputError(unknown_metric(name))
    if of_sentence and name == "bleu":
        return config.bleu(effective_order=True)
    if of_sentence and name == "gleu":
        return _imported("sentence_metrics:Gleu", smooth=True)(config)
    return BUILDERS[name](config)


def nearest(candidates: Iterable[str], reference: str, bleu: BLEU) -> str:
    """The first candidate with the best sentence BLEU (Kim and Rush 2016, section 3.3)."""
    return max(candidates, key=lambda one: bleu.sentence_score(one, [reference]).score)


def term_accuracy(
    hypotheses: Sequence[str], terms: Sequence[Sequence[str]], signature: str
) -> Score:
    """Percent of all listed phrases that occur (``occurs``) in the hypothesis of their line."""
    matches = [
        occurs(term, hypothesis)
        for hypothesis, line in zip(hypotheses, terms, strict=True)
        for term in line
    ]
    found, count = sum(matches), len(matches)
    signature = f"nterms:{count}|{signature}"
    return Score.of("term accuracy", 100 * found / count, signature, found=found, terms=count)
