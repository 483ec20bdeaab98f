"""Head ablation: the score of a model without a head, and with the best few.

It does not know the score, nor how the text is chosen. Sources: Michel et al. 2019, "Are
Sixteen Heads Really Better than One?", sections 3 and 4; Voita et al. 2019, "Analyzing Multi-Head
Self-Attention".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer.data.batching.batch import Row, collate
from transformer.decoding.forced import score_targets
from transformer.decoding.length_bucketing import bucket_batches, pair_lengths
from transformer.evaluation.metrics import Better
from transformer.model.heads import HeadName, attention_heads, heads_off, switched_off
from transformer.model.layers.dropout import evaluating
from transformer.model.transformer import Transformer

Measure = Callable[[Sequence[HeadName]], float]
"""The score of the model with these heads switched off as well."""


@dataclass(frozen=True)
class Ablation:
    """The score of a model without some heads."""

    off: tuple[HeadName, ...]
    score: float
    difference: float
    """The score minus that with the heads."""


class Ablations:
    """Measures a model with heads off; those that are already off stay off and are not ranked."""

    def __init__(self, model: Transformer, measure: Measure, better: Better) -> None:
        off = set(heads_off(model))
        self.heads = [name for name in attention_heads(model) if name not in off]
        self.measure = measure
        self.better = better
        self.score = measure(())

    def single(self) -> dict[HeadName, Ablation]:
        """Each head off alone, the costliest first (section 3.2)."""
        found = {name: self.without([name]) for name in self.heads}
        return dict(sorted(found.items(), key=lambda item: -self.cost(item[1])))

    def pruned(
        self, ranking: Sequence[HeadName], fractions: Sequence[float]
    ) -> dict[float, Ablation]:
        """The cheapest heads off together, for each fraction of the heads (section 4).

        The ``ranking`` is that of ``single`` for all fractions (the paper ranks by the gradient).
        A head that costs nothing alone may cost much when those that could replace it are off too.
        """
        cheapest = ranking[::-1]
        return {
            fraction: self.without(cheapest[: round(fraction * len(cheapest))])
            for fraction in sorted(fractions)
        }

    def without(self, off: Sequence[HeadName]) -> Ablation:
        """These heads off."""
        score = self.measure(off) if off else self.score
        return Ablation(tuple(off), score, score - self.score)

    def cost(self, ablation: Ablation) -> float:
        """The loss in quality."""
        return ablation.difference if self.better == "lower" else -ablation.difference


class ForcedLoss:
    """Cross-entropy of references by forced decoding: nats per target token.

    The end of a sentence is a token; labels are not smoothed.

    Args:
        model: It stays on its device; its mode is restored.
        sources: Subword ids without bos or eos; at least one sentence.
        batch_tokens: Maximal padded tokens of a batch, on the longer side.
    """

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
        """The loss with these heads off."""
        encode_again = any(name.kind == "encoder" for name in off)
        total = 0.0
        with evaluating(self.model), switched_off(self.model, off):
            for batch, memory in zip(self.batches, self.memories, strict=True):
                encoded = self.model.encode(batch.source) if encode_again else memory
                targets = batch.target_input, batch.target_output
                total -= float(score_targets(self.model, encoded, *targets).sum())
        return total / self.target_tokens
