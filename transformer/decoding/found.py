"""What a search found for a segment, and where the model looked when it said the best of it.

It does not know texts: pieces only. The weights are computed once more, with the best candidate
as the target, so that the search itself keeps its fast kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from transformer.data.batch import collate
from transformer.decoding.alignment import aligning_attention
from transformer.decoding.attention import word_attention
from transformer.decoding.search import Hypothesis
from transformer.model.heads import HeadName
from transformer.model.transformer import Transformer


@dataclass(frozen=True)
class Wanted:
    """What to tell of a translation besides its text."""

    attention: bool
    alignment: bool


@dataclass(frozen=True)
class Found:
    """The candidates of one segment, the best first, and what is wanted of the best.

    Attributes:
        hypotheses: As the search ranks them.
        attention: ``word_attention``, the end of the source left out.
        aligning: ``aligning_attention``, likewise.
    """

    hypotheses: list[Hypothesis]
    attention: Float[Tensor, "target source"] | None = None
    aligning: Float[Tensor, "target source"] | None = None


def looked_up(
    model: Transformer,
    segments: Sequence[list[int]],
    found: Sequence[Found],
    wanted: Wanted,
    head: HeadName | None,
) -> list[Found]:
    """Add what is wanted; ``head`` is that of ``aligning_attention``."""
    if not (wanted.attention or wanted.alignment):
        return list(found)
    best = [result.hypotheses[0].tokens for result in found]
    batch = collate(segments, best).to(next(model.parameters()).device)
    result = list(found)
    if wanted.attention:
        maps = _cut(word_attention(model, batch.source, batch.target_input), segments, best)
        result = [replace(f, attention=map_) for f, map_ in zip(result, maps, strict=True)]
    if wanted.alignment:
        weights = aligning_attention(model, batch.source, batch.target_input, head)
        maps = _cut(weights, segments, best)
        result = [replace(f, aligning=map_) for f, map_ in zip(result, maps, strict=True)]
    return result


def _cut(
    weights: Float[Tensor, "batch target source"],
    segments: Sequence[list[int]],
    targets: Sequence[Sequence[int]],
) -> list[Float[Tensor, "_ _"]]:
    """The rows and columns of real pieces, without the ends."""
    return [
        row[: len(target), : len(segment)].clone()
        for row, target, segment in zip(weights.float().cpu(), targets, segments, strict=True)
    ]
