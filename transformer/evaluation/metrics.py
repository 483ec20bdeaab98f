"""Metrics by name, BLEU, chrF and TER by sacreBLEU, and scores with signatures (Post 2018)."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from transformer.common.errors import InputError, raise_objections
from transformer.data.text.phrases import occurs

DECIMALS = 2

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class MetricsConfig:
    """How text is scored; ``conf/metrics/detokenised.yaml`` has the defaults, and explains them.

    ``choose`` also serves early stopping, sweeps, ``tune`` and exports. ``custom`` is in
    external_metrics.py. TER, ROUGE and SQuAD always ignore case.
    """

    tokenize: str = "13a"
    lowercase: bool = False
    test: Sequence[str] = ("bleu", "chrf", "ter")
    validation: Sequence[str] = ("bleu", "chrf")
    choose: str = "bleu"
    custom: str | None = None
    custom_better: Better = "higher"
    comet: str | None = None

    def __post_init__(self) -> None:
        self.bleu()
        raise_objections(
            map(_unknown, {*self.test, *self.validation, self.choose} - METRICS.keys())
        )

    @property
    def tested(self) -> list[str]:
        own = [name for name in ("custom", "comet") if getattr(self, name) is not None]
        return list(dict.fromkeys([*self.test, *own, self.choose]))

    @property
    def validated(self) -> list[str]:
        own = [] if self.custom is None else ["custom"]
        return list(dict.fromkeys([*self.validation, *own, self.choose]))

    def better(self, name: str) -> Better:
        return self.custom_better if name == "custom" else METRICS[name].better

    def bleu(self, *, effective_order: bool = False) -> BLEU:
        """BLEU; ``effective_order`` leaves out n-grams that are longer than the sentence."""
        try:
            return BLEU(
                tokenize=self.tokenize, lowercase=self.lowercase, effective_order=effective_order
            )
        except (LookupError, ImportError, OSError, RuntimeError) as error:
            # The tokenizer is unknown, or it needs a package or a download that is missing.
            reason, known = " ".join(str(error).split()), ", ".join(BLEU.TOKENIZERS)
            raise InputError(
                f"tokenize={self.tokenize} cannot be used ({reason}); choose one of {known}"
            ) from error


class MetricType(NamedTuple):
    """How a metric is built; ``label`` is its name in log lines."""

    label: str
    build: Callable[[MetricsConfig], Metric]
    better: Better = "higher"


def _imported(factory: str, *names: str, **settings: bool) -> Callable[[MetricsConfig], Metric]:
    path = f"transformer.evaluation.{factory}"
    return lambda config: resolve_name(path)(config, *names, **settings)


_sentence = partial(_imported, "sentence_metrics:build_sentence_metric")

METRICS: dict[str, MetricType] = {
    "bleu": MetricType("BLEU", MetricsConfig.bleu),
    "chrf": MetricType("chrF", lambda config: CHRF(lowercase=config.lowercase)),
    "ter": MetricType("TER", lambda _: TER(), "lower"),
    "exact_match": MetricType("exact match", _sentence("exact_match")),
    "cer": MetricType("CER", _sentence("CER"), "lower"),
    "wer": MetricType("WER", _sentence("WER"), "lower"),
    "per": MetricType("PER", _sentence("PER"), "lower"),
    "ser": MetricType("SER", _sentence("SER"), "lower"),
    "rouge1": MetricType("ROUGE-1", _sentence("rouge1")),
    "rouge2": MetricType("ROUGE-2", _sentence("rouge2")),
    "rougel": MetricType("ROUGE-L", _sentence("rougeL")),
    "squad_exact_match": MetricType("exact match", _sentence("squad_exact_match")),
    "squad_f1": MetricType("F1", _sentence("squad_f1")),
    "gleu": MetricType("GLEU", _imported("sentence_metrics:Gleu")),
    "custom": MetricType("custom", _imported("external_metrics:Custom")),
    "comet": MetricType("COMET", _imported("external_metrics:Comet")),
}


@dataclass(frozen=True)
class Score:
    """A score of a model on one text.

    Attributes:
        name: As sacreBLEU writes it (BLEU, chrF2, TER), or exact_match, AER, f1_NOUN and so on.
        value: In per cent for text, accuracy and F1; from 0 to 1 for alignment; 1 or more for
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
        raise InputError(_unknown(name))
    if of_sentence and name == "bleu":
        return config.bleu(effective_order=True)
    if of_sentence and name == "gleu":
        return _imported("sentence_metrics:Gleu", smooth=True)(config)
    return METRICS[name].build(config)


def _unknown(name: str) -> str:
    return f"metric {name} is unknown; choose {', '.join(METRICS)}"


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
