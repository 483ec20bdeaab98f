"""The n-best list of a segment, and where the model looked when it said the best of it.

It does not know texts: pieces only. The weights are computed once more, with the best hypothesis
as the target, so that the search itself keeps its fast kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from transformer.data.batching.batch import collate
from transformer.decoding.alignment import aligning_attention
from transformer.decoding.length_bucketing import bucket_batches
from transformer.decoding.search.interface import Hypothesis
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
    found: Sequence[list[Hypothesis]],
    head: HeadName | None,
    batch_tokens: int,
) -> list[NBest]:
    """The lists, with the attention of the best hypothesis of each.

    Args:
        model: In evaluation mode.
        segments: Source pieces.
        found: Hypotheses of each.
        head: As in ``aligning_attention``.
        batch_tokens: The most padded tokens of a batch, on the longer side.
    """
    lists = [NBest(hypotheses) for hypotheses in found]
    best = [hypotheses[0].tokens for hypotheses in found]
    lengths = [max(map(len, sides)) + 1 for sides in zip(segments, best, strict=True)]
    for indices in bucket_batches(lengths, batch_tokens):
        sides = [segments[index] for index in indices], [best[index] for index in indices]
        batch = collate(*sides).to(next(model.parameters()).device)
        weights = aligning_attention(model, batch.source, batch.target_input, head).float().cpu()
        for row, index in zip(weights, indices, strict=True):
            # The rows and columns of real pieces, without the ends.
            looked = row[: len(best[index]), : len(segments[index])].clone()
            lists[index] = NBest(found[index], looked)
    return lists
