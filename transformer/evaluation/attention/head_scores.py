"""The scores that rank heads: the loss on references, or BLEU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.attention.head_ablation import Better, ForcedLoss, Measure
from transformer.evaluation.attention.head_survey import corpus_pairs, known_split
from transformer.evaluation.metrics import MetricsConfig, score
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
    """Cross-entropy of the first references of a split, those of ``corpus_pairs``.

    Raises:
        InputError: See ``corpus_pairs``.
    """
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


def bleu_scorer(
    translator: Translator, run: Mapping[str, Any], split: str, sentences: int
) -> Scorer:
    """BLEU of the first sentences of a split, translated again for each set of heads.

    Raises:
        InputError: The corpus or the split is missing, or the split is empty.
    """
    config = typed(MetricsConfig, run["metrics"], "metrics")
    pairs = list(islice(known_split(run["data"], split), sentences))
    if not pairs:
        raise InputError(f"split={split} holds no sentence pair to measure heads on")
    sources, references = [source for source, _ in pairs], [(target,) for _, target in pairs]

    def measure(off: Sequence[HeadName]) -> float:
        with switched_off(translator.model, off):
            found = in_documents(translator).translate(sources)
        hypotheses = [translation.text for translation in found]
        return score(hypotheses, references, ("bleu",), config=config)[0].value

    signature = score(sources, references, ("bleu",), config=config)[0].signature
    measured = f"{len(pairs)} sentence pairs of the run's {split} text"
    return Scorer("BLEU", signature, measured, measure, "higher", decimals=2)
