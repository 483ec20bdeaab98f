"""Scores without some heads (Michel et al. 2019, sections 3 and 4; Voita et al. 2019)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer.data.batching.batch import Row, collate
from transformer.data.corpora.evaluation_text import read_texts, run_split
from transformer.decoding.batching import bucket_batches, pair_lengths
from transformer.decoding.document_translator import in_documents
from transformer.decoding.forced_decoding import score_targets
from transformer.decoding.translator import Translator
from transformer.evaluation import metrics
from transformer.evaluation.attention_heads import corpus_pairs
from transformer.model.head_masks import HeadName, attention_heads, heads_off, switched_off
from transformer.model.modes import evaluating
from transformer.model.transformer import Transformer
from transformer.settings.run import RunConfig

Measure = Callable[[Sequence[HeadName]], float]


@dataclass(frozen=True)
class Ablation:
    """The score of a model without some heads."""

    off: tuple[HeadName, ...]
    score: float
    difference: float
    """The score minus that with the heads."""


@dataclass(frozen=True)
class Ablations:
    """The heads of a model, measured."""

    score: float
    """With the heads that are on."""
    off: tuple[HeadName, ...]
    """Heads that were off already; they stay off and are not ranked."""
    single: dict[HeadName, Ablation]
    """Each head off alone, the costliest first (section 3.2)."""
    pruned: dict[float, Ablation]
    """The cheapest heads of ``single`` off together, for each fraction of the heads (section 4; the
    paper ranks by the gradient)."""


def ablate(
    model: Transformer, measure: Measure, better: metrics.Better, fractions: Sequence[float]
) -> Ablations:
    """Measure a model without each head, and without fractions of its heads."""
    off = heads_off(model)
    whole = measure(())

    def without(heads: Sequence[HeadName]) -> Ablation:
        value = measure(heads) if heads else whole
        return Ablation(tuple(heads), value, value - whole)

    alone = {name: without([name]) for name in attention_heads(model) if name not in off}
    sign = 1 if better == "lower" else -1
    ranking = sorted(alone, key=lambda name: -sign * alone[name].difference)
    cheapest = ranking[::-1]
    pruned = {
        fraction: without(cheapest[: round(fraction * len(cheapest))])
        for fraction in sorted(fractions)
    }
    return Ablations(whole, tuple(off), {name: alone[name] for name in ranking}, pruned)


class ForcedLoss:
    """Cross-entropy of references in nats a target token; ``batch_tokens`` counts padding."""

    def __init__(
        self,
        model: Transformer,
        sources: Sequence[Row],
        targets: Sequence[Row],
        batch_tokens: int = 4096,
    ) -> None:
        self.model = model
        device = next(model.parameters()).device
        lengths = pair_lengths(zip(sources, targets, strict=True))
        self.batches = [
            collate([sources[i] for i in indices], [targets[i] for i in indices]).to(device)
            for indices in bucket_batches(lengths, batch_tokens)
        ]
        self.target_tokens = sum(batch.target_tokens for batch in self.batches)
        with evaluating(model):
            # Only heads of the encoder change the memories.
            self.memories = [model.encode(batch.source) for batch in self.batches]

    def __call__(self, off: Sequence[HeadName]) -> float:
        encode_again = any(name.kind == "encoder" for name in off)
        total = 0.0
        with evaluating(self.model), switched_off(self.model, off):
            for batch, memory in zip(self.batches, self.memories, strict=True):
                encoded = self.model.encode(batch.source) if encode_again else memory
                targets = batch.target_input, batch.target_output
                total -= float(score_targets(self.model, encoded, *targets).sum())
        return total / self.target_tokens


@dataclass(frozen=True)
class Scorer:
    """A way to score a model with heads off."""

    name: str
    signature: str
    measured: str
    measure: Measure
    better: metrics.Better
    decimals: int


def loss_scorer(translator: Translator, run: RunConfig, split: str, sentences: int) -> Scorer:
    """Cross-entropy of the first references of a split, those of ``corpus_pairs``."""
    pairs = corpus_pairs(translator, run.data, split, sentences)
    sources = [pair.source for pair in pairs]
    targets = [pair.target for pair in pairs]
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
    translator: Translator, run: RunConfig, split: str, sentences: int, metric: str
) -> Scorer:
    """A metric of the first sentences of a split, translated again for each set of heads."""
    config = run.metrics
    metrics.build_metric(metric, config)
    sources, references, _ = read_texts(run_split(run.data, split, training=True))
    sources, references = sources[:sentences], references[:sentences]

    def scored(hypotheses: Sequence[str]) -> metrics.Score:
        [score] = metrics.score(hypotheses, references, (metric,), config=config, sources=sources)
        return score

    def measure(off: Sequence[HeadName]) -> float:
        with switched_off(translator.model, off):
            translations = in_documents(translator).translate(sources)
        return scored([translation.text for translation in translations]).value

    return Scorer(
        name=metrics.METRICS[metric].label,
        # The signature of any text.
        signature=scored(sources).signature,
        measured=f"{len(sources)} sentence pairs of the run's {split} text",
        measure=measure,
        better=config.better(metric),
        decimals=2,
    )
