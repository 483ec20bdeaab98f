"""What the heads of a model are worth: a score without one, with one alone, with the best few.

It does not know which score that is, nor how the text is chosen. Sources: Michel et al. 2019, "Are
Sixteen Heads Really Better than One?", sections 3 and 4; Voita et al. 2019, "Analyzing Multi-Head
Self-Attention".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from transformer.common.errors import InputError
from transformer.data.batching.batch import Row, collate
from transformer.decoding.forced.scorer import score_targets
from transformer.decoding.inference_mode import evaluating
from transformer.decoding.length_bucketing import bucket_batches
from transformer.model.heads import HeadName, attention_heads, heads_off, switched_off
from transformer.model.transformer import Transformer

Measure = Callable[[Sequence[HeadName]], float]
"""The score of the model with these heads off, besides those that are off anyway."""

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Ablation:
    """What the model scores without some heads.

    Attributes:
        off: Those heads.
        score: What it scores then.
        difference: That less the score with them.
    """

    off: tuple[HeadName, ...]
    score: float
    difference: float


class Ablations:
    """Measures a model with heads off.

    Args:
        model: Its heads that are off stay so and are not ranked.
        measure: How to score it.
        better: Which scores are good.
    """

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

    def alone(self) -> dict[HeadName, Ablation]:
        """For each layer the head that does best with all others of the layer off (section 3.3)."""
        found = {}
        for _, layer in groupby(self.heads, key=lambda name: name[:2]):
            heads = list(layer)
            kept = {name: self.without([h for h in heads if h != name]) for name in heads}
            best = min(kept, key=lambda name: self.cost(kept[name]))
            found[best] = kept[best]
        return found

    def pruned(self, ranking: Sequence[HeadName], shares: Sequence[float]) -> dict[float, Ablation]:
        """The heads that cost least off together, a larger and larger share (section 4).

        Args:
            ranking: As ``single`` gives it, the costliest first: one ranking for all shares (the
                paper's is by the gradient). A head that costs nothing alone may cost much once
                those that could stand in for it are off too.
            shares: Of the heads in the ranking, above 0 and at most 1.
        """
        cheapest = list(reversed(ranking))
        return {
            share: self.without(cheapest[: round(share * len(cheapest))])
            for share in sorted(shares)
        }

    def without(self, off: Sequence[HeadName]) -> Ablation:
        """These heads off."""
        score = self.measure(off) if off else self.score
        return Ablation(tuple(off), score, score - self.score)

    def cost(self, ablation: Ablation) -> float:
        """How much worse the model became."""
        return ablation.difference if self.better == "lower" else -ablation.difference


class ForcedLoss:
    """Cross-entropy of references, which the decoder is made to read: nats per target token.

    The end of a sentence is a token; labels are not smoothed.

    Args:
        model: Measured where it is; its mode is restored.
        sources: Piece ids without bos or eos.
        targets: Their references.
        batch_tokens: The most padded tokens of a batch, on the longer side.

    Raises:
        InputError: There is no pair.
    """

    def __init__(
        self,
        model: Transformer,
        sources: Sequence[Row],
        targets: Sequence[Row],
        batch_tokens: int = 4096,
    ) -> None:
        if not sources:
            raise InputError("there is no sentence pair to measure heads on; give at least one")
        self.model = model
        device = next(model.parameters()).device
        lengths = [max(map(len, pair)) + 1 for pair in zip(sources, targets, strict=True)]
        self.batches = [
            collate(
                [sources[index] for index in indices], [targets[index] for index in indices]
            ).to(device)
            for indices in bucket_batches(lengths, batch_tokens)
        ]
        self.target_tokens = sum(batch.target_tokens for batch in self.batches)
        with evaluating(model):
            # Heads of the decoder change nothing here: most of a model's heads need it once.
            self.memories = [model.encode(batch.source) for batch in self.batches]

    def __call__(self, off: Sequence[HeadName]) -> float:
        """The loss with these heads off."""
        encodes_anew = any(name.kind == "encoder" for name in off)
        total = 0.0
        with evaluating(self.model), switched_off(self.model, off):
            for batch, memory in zip(self.batches, self.memories, strict=True):
                encoded = self.model.encode(batch.source) if encodes_anew else memory
                rows = batch.target_input, batch.target_output
                total -= float(score_targets(self.model, encoded, *rows).sum())
        return total / self.target_tokens
