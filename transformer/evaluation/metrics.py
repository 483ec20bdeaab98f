"""A score with its signature; and BLEU, chrF and TER, by sacreBLEU.

It knows text only: neither models nor files.
Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores".
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from transformer.common.errors import InputError

DECIMALS = 2


@dataclass(frozen=True)
class MetricsConfig:
    """How text is compared; the values are in ``conf/metrics``, and a checkpoint stores them.

    Attributes:
        tokenize: sacreBLEU's tokenizer for BLEU: 13a for raw text, none for tokenised text, char,
            zh, intl and more.
        lowercase: Ignore case in BLEU and chrF; TER always ignores it, by sacreBLEU's default.

    Raises:
        InputError: sacreBLEU has no such tokenizer, or a package for it is missing.
    """

    tokenize: str
    lowercase: bool

    def __post_init__(self) -> None:
        self.bleu()

    def bleu(self, *, effective_order: bool = False) -> BLEU:
        """The metric; of effective order, without the orders that a sentence is too short for.

        Raises:
            InputError: See the class.
        """
        try:
            if self.tokenize not in BLEU.TOKENIZERS:
                raise RuntimeError("unknown to sacreBLEU")
            return BLEU(
                tokenize=self.tokenize, lowercase=self.lowercase, effective_order=effective_order
            )
        except (ImportError, OSError, RuntimeError) as error:  # a package, or a download
            reason, known = " ".join(str(error).split()), ", ".join(BLEU.TOKENIZERS)
            raise InputError(
                f"tokenize={self.tokenize} cannot be used ({reason}); choose one of {known}"
            ) from error


METRICS: dict[str, Callable[[MetricsConfig], Metric]] = {
    "bleu": MetricsConfig.bleu,
    "chrf": lambda config: CHRF(lowercase=config.lowercase),
    "ter": lambda _: TER(),
}
"""The metrics by name, each made from the config."""


@dataclass(frozen=True)
class Score:
    """A score of a model on one text.

    Attributes:
        name: BLEU, chrF2, TER (as sacreBLEU writes it), AER, perplexity, accuracy, f1_NOUN,
            confusion.
        value: From 0 to 100 for sacreBLEU's, accuracy and F1 (TER may be more), from 0 to 1 for
            alignment, from 1 up for perplexity, a number of errors for confusion. Lower is better
            for TER, AER, perplexity and errors.
        signature: How it was computed; for sacreBLEU's with the version.
        fields: The values of ``to_json``: ``name``, ``score`` (the value, rounded), ``signature``,
            and more of the metric, such as precision and recall.
        decimals: In tables.
    """

    name: str
    value: float
    signature: str
    fields: dict[str, Any] = field(repr=False)
    decimals: int = DECIMALS

    @classmethod
    def of(
        cls, name: str, value: float, signature: str, *, decimals: int = DECIMALS, **more: Any
    ) -> "Score":
        """A score whose fields are its name, its rounded value, its signature, and more."""
        rounded = round(value, decimals)
        fields = {"name": name, "score": rounded, "signature": signature, **more}
        return cls(name, value, signature, fields, decimals)

    def to_json(self) -> dict[str, Any]:
        """The object that ``sacrebleu --format json --width 2`` prints, or one like it."""
        return dict(self.fields)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    *,
    config: MetricsConfig,
) -> list[Score]:
    """Score hypotheses against the references of each.

    Args:
        hypotheses: One a line, in the order of the references.
        references: For each hypothesis one, or a list of them.
        metrics: Of ``bleu``, ``chrf``, ``ter``; the scores come in this order.
        config: How text is compared.

    Raises:
        InputError: The numbers of lines differ or are zero, or a name is unknown.
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses and {len(references)} references cannot be compared; "
            "give one reference for each hypothesis, in the same order"
        )
    # The first references, the second, and so on, with None where there is none.
    lists = ([one] if isinstance(one, str) else one for one in references)
    streams = [list(stream) for stream in zip_longest(*lists)]
    scores = []
    for name in metrics:
        metric = build_metric(name, config)
        result = metric.corpus_score(list(hypotheses), streams)
        signature = str(metric.get_signature())
        fields = json.loads(result.format(width=DECIMALS, signature=signature, is_json=True))
        scores.append(Score(result.name, float(result.score), signature, fields))
    return scores


def build_metric(name: str, config: MetricsConfig) -> Metric:
    """The metric of sacreBLEU with this name and config.

    Raises:
        InputError: The name is unknown.
    """
    if name not in METRICS:
        raise InputError(f"metric {name} is unknown; choose {', '.join(METRICS)}")
    return METRICS[name](config)


def nearest(candidates: Sequence[str], reference: str, bleu: BLEU) -> str:
    """The candidate with the best sentence BLEU (exponential smoothing); of a tie the first.

    ``bleu`` is of effective order. Source: Kim and Rush 2016, "Sequence-Level Knowledge
    Distillation", section 3.3.

    Raises:
        InputError: There is no candidate.
    """
    if not candidates:
        raise InputError("there is no candidate to choose from; give at least one")
    return max(candidates, key=lambda one: bleu.sentence_score(one, [reference]).score)
