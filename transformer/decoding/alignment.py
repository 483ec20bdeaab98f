"""Word alignment read off the cross-attention: which source words a target word came from.

It knows the model and the words of pieces; not where targets come from, nor gold links.
Source: Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models",
section 3.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.common.errors import InputError
from transformer.common.schema import typed_value
from transformer.data.text.word_alignment import NO_WORD, Links
from transformer.model.attention.record_weights import recording
from transformer.model.config import ModelConfig
from transformer.model.decoder import DecoderLayer
from transformer.model.heads import HeadName
from transformer.model.transformer import Transformer


@dataclass(frozen=True)
class Aligner:
    """How links are read off the cross-attention.

    The defaults were chosen on the validation text of pocket; what came of them is in
    docs/alignment.md.

    Attributes:
        head: The head of the cross-attention to look at; None looks at all heads of the layers
            after the first, on average, which is better there than any one layer or head that was
            not guided.
        near_best: A target word is linked to each source word that has at least so much of the
            weight of the best one: a fertile word ("im" for "in the") has several links.
    """

    head: HeadName | None = None
    near_best: float = 0.6

    @classmethod
    def guided(cls, head: HeadName) -> "Aligner":
        """For a head that learnt the links: it shares its weight evenly among them."""
        return cls(head, near_best=0.3)

    @classmethod
    def trained(cls, loss: Mapping[str, Any], config: ModelConfig) -> "Aligner":
        """For the model of a run: what suits the head that it guided, else the average.

        Args:
            loss: The plain values of the run's ``loss``.
            config: Of the model.

        Raises:
            InputError: See ``guided_head``.
        """
        head = guided_head(loss, config)
        return cls() if head is None else cls.guided(head)

    def checked(self, config: ModelConfig) -> "Aligner":
        """This, if the model has the head.

        Raises:
            InputError: It has not, it is of another kind, or no weight can be that near to the
                best.
        """
        layers, heads = config.decoder_layers, config.num_heads
        head = self.head or HeadName("cross", 0, 0)
        if head.kind != "cross":
            raise InputError(f"{head} reads no source beside a target; align by a cross.LAYER.HEAD")
        if not (0 <= head.layer < layers and 0 <= head.head < heads):
            raise InputError(
                f"alignment_head={head.layer}.{head.head} is not there: the decoder has layers "
                f"0 to {layers - 1} of heads 0 to {heads - 1}; write LAYER.HEAD"
            )
        if not 0 < self.near_best <= 1:
            raise InputError(f"alignment_threshold={self.near_best} must be in (0, 1]")
        return self

    @property
    def signature(self) -> str:
        """How the links are found, in the manner of sacreBLEU."""
        index = "mean" if self.head is None else f"{self.head.layer}.{self.head.head}"
        return f"head:{index}|threshold:{self.near_best}"


def guided_head(loss: Mapping[str, Any], config: ModelConfig) -> HeadName | None:
    """The head that learns the links in training; None where none does.

    Args:
        loss: The plain values of a run's ``loss``.
        config: Of the model.

    Raises:
        InputError: There is no such layer or head.
    """
    if not typed_value(loss.get("alignment_weight"), float, "loss.alignment_weight"):
        return None
    layer = typed_value(loss.get("alignment_layer"), int | None, "loss.alignment_layer")
    head = typed_value(loss.get("alignment_head"), int, "loss.alignment_head")
    if layer is None:
        layer = max(0, config.decoder_layers - 2)
    indices = (("layer", layer, config.decoder_layers), ("head", head, config.num_heads))
    for name, value, count in indices:
        if not 0 <= value < count:
            raise InputError(
                f"loss.alignment_{name}={value} is not there: the decoder has {count} {name}s, "
                f"counted from 0 to {count - 1}"
            )
    return HeadName("cross", layer, head)


def aligning_attention(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    target_input: Int[Tensor, "batch target"],
    head: HeadName | None,
) -> Float[Tensor, "batch target source"]:
    """Where one head looks, or all heads of the layers after the first on average.

    Row ``i`` is the step that predicts the token after ``target_input[:i + 1]``. On pocket it
    aligns far better than the step that has read that token (Chen et al. 2020, "Accurate Word
    Alignment Induction from Neural Machine Translation", propose that one).
    """
    layers = cast(Iterable[DecoderLayer], model.decoder.layers)
    with recording([layer.cross_attention for layer in layers]) as weights:
        model(source, target_input)
    if head is not None:
        return weights[head.layer][:, head.head]
    return torch.stack([layer.mean(1) for layer in weights[1:] or weights]).mean(0)


def word_links(
    weights: Float[Tensor, "target source"],
    source_words: Sequence[int],
    target_words: Sequence[int],
    near_best: float = Aligner.near_best,
) -> Links:
    """Link each target word to the source words that it looked at most.

    The weights of a word's pieces are added up, on both sides. Every target word has a link, at a
    tie several: of a word that the source says nothing of (``um``), it is a guess.

    Args:
        weights: Of each target piece on each source piece; the end of the source left out.
        source_words: The word of each source piece; a tag, which is of no word, counts to none.
        target_words: The word of each target piece; a separator counts to none.
        near_best: The least share of the best word's weight that makes a link.
    """
    shape = max(target_words, default=-1) + 1, max(source_words, default=-1) + 1
    if 0 in shape:
        return frozenset()
    by_word = weights.new_zeros(shape)
    # target source -> target_word source_word
    rows, columns = torch.tensor(target_words), torch.tensor(source_words)
    said, read = rows != NO_WORD, columns != NO_WORD
    indices = rows[said][:, None], columns[read][None]
    by_word.index_put_(indices, weights[said][:, read], accumulate=True)
    best = by_word.amax(-1, keepdim=True)
    linked = (by_word >= near_best * best) & (best > 0)
    return frozenset((int(source), int(target)) for target, source in linked.nonzero())
