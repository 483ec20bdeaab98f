"""A score with its signature; and BLEU, chrF and TER, by sacreBLEU.

It knows text only: neither models nor files.
Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores".
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from transformer.common.errors import InputError

DECIMALS = 2


@dataclass(frozen=True)
class MetricsConfig:
    """How text is compared; the values live in ``conf/metrics``, and a checkpoint remembers them.

    Attributes:
        tokenize: sacreBLEU's tokenizer for BLEU: 13a for raw text, none for text that is tokenised
            already, char, zh, intl and others.
        lowercase: Ignore case in BLEU and chrF; TER ignores it always, as sacreBLEU's does unless
            told otherwise.

    Raises:
        InputError: sacreBLEU has no such tokenizer, or not all that it needs.
    """

    tokenize: str
    lowercase: bool

    def __post_init__(self) -> None:
        self.bleu()

    def bleu(self, *, effective_order: bool = False) -> BLEU:
        """The metric.

        Args:
            effective_order: Leave out the orders that a text is too short for, as is meant for
                single sentences.

        Raises:
            InputError: As the class.
        """
        if self.tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(BLEU.TOKENIZERS)
            raise InputError(
                f"tokenize={self.tokenize} is unknown to sacreBLEU; choose one of {known}"
            )
        try:
            return BLEU(
                tokenize=self.tokenize, lowercase=self.lowercase, effective_order=effective_order
            )
        except (ImportError, OSError, RuntimeError) as error:  # a package, or a download
            reason = " ".join(str(error).split())
            raise InputError(
                f"tokenize={self.tokenize} cannot be had ({reason}); see sacreBLEU's own help, or "
                "choose another"
            ) from error


@dataclass(frozen=True)
class Score:
    """One number that tells how good a model is on one text, as people and programs see it.

    Attributes:
        name: As sacreBLEU writes it (BLEU, chrF2, TER), or as its own file does: AER, perplexity,
            accuracy, f1_NOUN, confusion.
        value: What its file says: from 0 to 100 for sacreBLEU's, accuracy and F1 (TER may be
            more), from 0 to 1 for alignment (``alignment.py``), from 1 up for perplexity, a number
            of errors for confusion. Lower is better for TER, AER, perplexity and errors.
        signature: How it was computed; for sacreBLEU's down to the version.
        fields: What ``to_json`` writes: ``name``, ``score`` (the value, rounded), ``signature``,
            and what else belongs to the metric, such as precision and recall.
        decimals: As many as people are shown.
    """

    name: str
    value: float
    signature: str
    fields: dict[str, Any] = field(repr=False)
    decimals: int = DECIMALS

    def to_json(self) -> dict[str, Any]:
        """The object that ``sacrebleu --format json --width 2`` prints, or one like it."""
        return dict(self.fields)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    *,
    config: MetricsConfig,
) -> list[Score]:
    """Score hypotheses against one reference each.

    Args:
        hypotheses: One a line, in the order of the references.
        references: Text as the hypotheses are.
        metrics: Of ``bleu``, ``chrf``, ``ter``; the scores come in this order.
        config: How they are compared.

    Raises:
        InputError: The numbers of lines differ or are zero, or a name is unknown.
    """
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses and {len(references)} references cannot be compared; "
            "give one reference for each hypothesis, in the same order"
        )
    if not hypotheses:
        raise InputError("there is no hypothesis to score; give at least one line")
    scores = []
    for name in metrics:
        metric = build_metric(name, config)
        result = metric.corpus_score(list(hypotheses), [list(references)])
        signature = str(metric.get_signature())
        fields = json.loads(result.format(width=DECIMALS, signature=signature, is_json=True))
        scores.append(Score(result.name, float(result.score), signature, fields))
    return scores


def build_metric(name: str, config: MetricsConfig) -> Metric:
    """sacreBLEU's metric of a name, set as the config says.

    Raises:
        InputError: The name is unknown.
    """
    if name == "bleu":
        return config.bleu()
    if name == "chrf":
        return CHRF(lowercase=config.lowercase)
    if name == "ter":
        return TER()
    raise InputError(f"metric {name} is unknown; choose bleu, chrf or ter")
