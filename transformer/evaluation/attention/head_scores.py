"""The scores that rank heads: the loss on references, or a metric of the output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer.common.schema import typed
from transformer.data.corpora.evaluation_text import with_references
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.attention.head_ablation import Better, ForcedLoss, Measure
from transformer.evaluation.attention.head_survey import corpus_pairs
from transformer.evaluation.metrics import METRICS, MetricsConfig, Score, build_metric, score
from transformer.evaluation.run_text import run_split
from transformer.model.heads import HeadName, switched_off


@dataclass(frozen=True)
class Scorer:
    """A way to score a model with heads off."""

    name: str
    signature: str
    measured: str
    """Description of the text."""
    measure: Measure
    better: Better
    decimals: int
    """In tables."""


def loss_scorer(
    translator: Translator, run: Mapping[str, Any], split: str, sentences: int
) -> Scorer:
    """Cross-entropy of the first references of a split, those of ``corpus_pairs``."""
    pairs = corpus_pairs(translator, run["data"], split, sentences)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    measure = ForcedLoss(translator.model, sources, targets, translator.batch_tokens)
    return Scorer(
        "loss",
        f"nats per token|ntokens:{measure.target_tokens}|smoothing:0",
        f"{len(pairs)} sentence pairs of the run's {split} text",
        measure,
        "lower",
        decimals=4,
    )


def metric_scorer(
    translator: Translator, run: Mapping[str, Any], split: str, sentences: int, metric: str
) -> Scorer:
    """A metric of the first sentences of a split, translated again for each set of heads."""
    config = typed(MetricsConfig, run["metrics"], "metrics")
    build_metric(metric, config)
    texts = with_references(run_split(run["data"], split, training=True))[:sentences]
    sources, references = [source for source, _ in texts], [targets for _, targets in texts]

    def scored(hypotheses: Sequence[str]) -> Score:
        [found] = score(hypotheses, references, (metric,), config=config, sources=sources)
        return found

    def measure(off: Sequence[HeadName]) -> float:
        with switched_off(translator.model, off):
            found = in_documents(translator).translate(sources)
        return scored([translation.text for translation in found]).value

    signature = scored(sources).signature
    measured = f"{len(texts)} sentence pairs of the run's {split} text"
    label, better = METRICS[metric].label, config.better(metric)
    return Scorer(label, signature, measured, measure, better, decimals=2)
