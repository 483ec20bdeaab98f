"""The n-best list of a segment, and where the model looked when it said the best of it.

It does not know texts: pieces only. The weights are computed once more, with the best hypothesis
as the target, so that the search itself keeps its fast kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from transformer.data.batch import collate
from transformer.decoding.alignment import aligning_attention
from transformer.decoding.search import Hypothesis
from transformer.model.heads import HeadName
from transformer.model.transformer import Transformer


@dataclass(frozen=True)
class NBest:
    """The hypotheses of one segment.

    Attributes:
        hypotheses: As the search ranks them, the best first.
        attention: On request, ``aligning_attention`` of the best, the end of the source left out.
    """

    hypotheses: list[Hypothesis]
    attention: Float[Tensor, "target source"] | None = None


def with_attention(
    model: Transformer,
    segments: Sequence[list[int]],
    lists: Sequence[NBest],
    head: HeadName | None,
) -> list[NBest]:
    """Add the attention of the best hypothesis of each; ``head`` as in ``aligning_attention``."""
    best = [nbest.hypotheses[0].tokens for nbest in lists]
    batch = collate(segments, best).to(next(model.parameters()).device)
    weights = aligning_attention(model, batch.source, batch.target_input, head).float().cpu()
    # The rows and columns of real pieces, without the ends.
    return [
        replace(nbest, attention=row[: len(target), : len(segment)].clone())
        for nbest, row, target, segment in zip(lists, weights, best, segments, strict=True)
    ]
