"""The keys under ``metrics.``, and the metrics that they name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from transformer.common.errors import InputError
from transformer.common.schema import Settings

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

Better = Literal["higher", "lower"]


class MetricName(NamedTuple):
    """The name of a metric in log lines, and which of two values is better."""

    label: str
    better: Better = "higher"


METRICS: dict[str, MetricName] = {
    "bleu": MetricName("BLEU"),
    "chrf": MetricName("chrF2"),
    "ter": MetricName("TER", "lower"),
    "exact_match": MetricName("exact match"),
    "cer": MetricName("CER", "lower"),
    "wer": MetricName("WER", "lower"),
    "per": MetricName("PER", "lower"),
    "ser": MetricName("SER", "lower"),
    "rouge1": MetricName("ROUGE-1"),
    "rouge2": MetricName("ROUGE-2"),
    "rougel": MetricName("ROUGE-L"),
    "squad_exact_match": MetricName("exact match"),
    "squad_f1": MetricName("F1"),
    "gleu": MetricName("GLEU"),
    "custom": MetricName("custom"),
    "comet": MetricName("COMET"),
}
"""Metrics of text; evaluation/metrics.py computes them."""

OTHER_VALUES: Mapping[str, Better] = {
    "loss": "lower",
    "perplexity": "lower",
    "accuracy": "higher",
}
"""Values of a validation that are not metrics of text."""


@dataclass(frozen=True)
class MetricsConfig(Settings, group="metrics"):
    """How text is scored; ``conf/metrics/detokenized.yaml`` has the defaults, and explains them.

    ``choose`` also serves early stopping, sweeps, ``tune`` and exports. ``custom`` is in
    sentence_metrics.py. TER, ROUGE and SQuAD always ignore case.
    """

    tokenize: str = "13a"
    lowercase: bool = False
    test: Sequence[str] = ("bleu", "chrf", "ter")
    validation: Sequence[str] = ("bleu", "chrf")
    choose: str = "bleu"
    custom: str | None = None
    custom_better: Better = "higher"
    comet: str | None = None

    def _objections(self) -> Iterator[str]:
        yield from map(unknown_metric, self._named - METRICS.keys())
        # Its package may be missing: a checkpoint names it, and translates without it.
        if self.tokenize != MetricsConfig.tokenize:
            from sacrebleu.metrics import BLEU

            if self.tokenize not in BLEU.TOKENIZERS:
                yield _unusable(self.tokenize, "it is unknown", BLEU.TOKENIZERS)

    @property
    def _named(self) -> set[str]:
        return {*self.test, *self.validation, self.choose}

    @property
    def tested(self) -> list[str]:
        external = [name for name in ("custom", "comet") if getattr(self, name) is not None]
        return list(dict.fromkeys([*self.test, *external, self.choose]))

    @property
    def validated(self) -> list[str]:
        external = [] if self.custom is None else ["custom"]
        return list(dict.fromkeys([*self.validation, *external, self.choose]))

    def better(self, name: str) -> Better:
        return self.custom_better if name == "custom" else METRICS[name].better

    def bleu(self, *, effective_order: bool = False) -> "BLEU":
        """BLEU; ``effective_order`` leaves out n-grams that are longer than the sentence.

        Raises InputError if the tokenizer needs a package or a download that is missing.
        """
        from sacrebleu.metrics import BLEU

        try:
            return BLEU(
                tokenize=self.tokenize, lowercase=self.lowercase, effective_order=effective_order
            )
        except (ImportError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            others = [name for name in BLEU.TOKENIZERS if name != self.tokenize]
            raise InputError(_unusable(self.tokenize, reason, others)) from error


def _unusable(tokenize: str, reason: str, known: Iterable[str]) -> str:
    return f"tokenize={tokenize} cannot be used ({reason}); choose one of {', '.join(known)}"


def unknown_metric(name: str) -> str:
    """The message for a name that no metric has."""
    return f"metric {name} is unknown; choose {', '.join(METRICS)}"
