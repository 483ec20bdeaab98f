"""Word alignment from the cross-attention: target to source (Garg et al. 2019, section 3)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.batching.batch import Row, Source, collate
from transformer.data.text.word_alignment import NO_WORD, Link, Links
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batching import bucket_batches, check_lengths, pair_lengths
from transformer.model.attention.record_weights import recording
from transformer.model.decoder import DecoderLayer
from transformer.model.head_masks import HeadName
from transformer.model.modes import evaluating
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig
from transformer.settings.training import LossConfig


@dataclass(frozen=True)
class Aligner:
    """Settings of the word links; docs/attention_views.md compares them."""

    head: HeadName | None = None
    """The head of the cross-attention; None averages all heads of the layers after the first."""
    near_best: float = 0.6
    """A target word is linked to each source word with at least this fraction of the best word's
    weight: a fertile word ("im" for "in the") has several links."""

    @classmethod
    def trained(cls, loss: LossConfig, config: ModelConfig) -> "Aligner":
        """The aligner of a run: its guided head (``guided_head``), or the average of heads."""
        head = guided_head(loss, config)
        # A guided head divides its weight evenly among several links.
        return cls() if head is None else cls(head, near_best=0.3)

    def check(self, config: ModelConfig) -> None:
        """Raise InputError unless the model has the head, and the threshold is in range."""
        if self.head is not None:
            name = str(self.head).removeprefix("cross.")
            _check_head(self.head, config, f"alignment_head={name}")
        if not 0 < self.near_best <= 1:
            raise InputError(f"alignment_threshold={self.near_best} must be in (0, 1]")

    @property
    def signature(self) -> str:
        """Signature of the settings, in the style of sacreBLEU."""
        index = "mean" if self.head is None else f"{self.head.layer}.{self.head.head}"
        return f"head:{index}|threshold:{self.near_best}"


def _check_head(head: HeadName, config: ModelConfig, setting: str) -> None:
    layers = config.decoder_layers
    heads = config.num_heads
    if head.kind != "cross" or head.layer not in range(layers) or head.head not in range(heads):
        raise InputError(
            f"{setting} does not exist: the decoder has layers 0 to {layers - 1} of heads 0 to "
            f"{heads - 1}; write LAYER.HEAD"
        )


def guided_head(loss: LossConfig, config: ModelConfig) -> HeadName | None:
    """The head that learns the links in training (``loss`` of a run); None if there is none."""
    if not loss.alignment_weight:
        return None
    layer = loss.alignment_layer
    if layer is None:
        layer = max(0, config.decoder_layers - 2)
    index = loss.alignment_head
    head = HeadName("cross", layer, index)
    _check_head(head, config, f"loss.alignment_layer={layer} with loss.alignment_head={index}")
    return head


def align(
    model: Transformer,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    *,
    head: HeadName | None,
    near_best: float,
    batch_tokens: int = 4096,
) -> list[Links]:
    """Link the words of sentence pairs; see ``Aligner`` and ``score_pairs``."""
    encoded = tokenizer.encode_pairs(pairs)
    check_lengths(encoded, model.max_lengths, "align")
    with evaluating(model):
        maps = batched_attention(model, encoded, head, batch_tokens)
    return [
        word_links(
            weights,
            tokenizer.source_words(source, text),
            tokenizer.target_words(target, translation),
            near_best,
        )
        for weights, (source, target), (text, translation) in zip(maps, encoded, pairs, strict=True)
    ]


def aligning_attention(
    model: Transformer,
    source: Source,
    target_input: Int[Tensor, "batch target"],
    head: HeadName | None,
) -> Float[Tensor, "batch target source"]:
    """Attention of one head, or the average of all heads of the layers after the first.

    Row ``i`` is the step that predicts the token after ``target_input[:i + 1]``. Chen et al. 2020,
    "Accurate Word Alignment Induction from Neural Machine Translation", take the step after it,
    which reads this token; on pocket it aligns far worse.
    """
    layers = cast(Iterable[DecoderLayer], model.decoder.layers)
    with recording([layer.cross_attention for layer in layers]) as weights:
        model(source, target_input)
    if head is not None:
        return weights[head.layer][:, head.head]
    return torch.stack([layer.mean(1) for layer in weights[1:] or weights]).mean(0)


def batched_attention(
    model: Transformer,
    pairs: Sequence[tuple[Row, Row]],
    head: HeadName | None,
    batch_tokens: int = 4096,
) -> list[Float[Tensor, "target source"]]:
    """`aligning_attention` of (source, target) subwords, without ends or padding."""
    maps = [torch.empty(0, 0)] * len(pairs)
    device = next(model.parameters()).device
    for indices in bucket_batches(pair_lengths(pairs), batch_tokens):
        sources, targets = zip(*(pairs[index] for index in indices), strict=True)
        batch = collate(sources, targets).to(device)
        weights = aligning_attention(model, batch.source, batch.target_input, head).float().cpu()
        for index, of_pair in zip(indices, weights, strict=True):
            source, target = pairs[index]
            # The class token is no part of the source.
            first = int(model.config.class_token)
            maps[index] = of_pair[: len(target), first : first + len(source)].clone()
    return maps


def word_links(
    weights: Float[Tensor, "target source"],
    source_words: Sequence[int],
    target_words: Sequence[int],
    near_best: float,
) -> Links:
    """Link each target word to the source words with the largest weight.

    The weights of a word's subwords are added up, on both sides; ``NO_WORD`` is a tag or a
    separator. A word is linked to all with at least ``near_best`` of its largest weight; without a
    counterpart in the source (``um``), the link is a guess.
    """
    shape = max(target_words, default=-1) + 1, max(source_words, default=-1) + 1
    if 0 in shape:
        return frozenset()
    by_word = weights.new_zeros(shape)
    # target source -> target_word source_word
    rows = torch.tensor(target_words)
    columns = torch.tensor(source_words)
    in_word = rows != NO_WORD
    in_source_word = columns != NO_WORD
    indices = (rows[in_word][:, None], columns[in_source_word][None])
    by_word.index_put_(indices, weights[in_word][:, in_source_word], accumulate=True)
    best = by_word.amax(-1, keepdim=True)
    linked = (by_word >= near_best * best) & (best > 0)
    return frozenset((int(source), int(target)) for target, source in linked.nonzero())


def joined_links(
    maps: Sequence[Float[Tensor, "_ _"]],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    near_best: float,
    between: str = " ",
) -> Links:
    """`word_links` of the parts of one text, whose target words are numbered through.

    ``maps`` have the shape ``target source`` of each part. ``sources`` are numbers of words of the
    whole text, ``targets`` of each part. A part of the source may continue the last word of the
    part before it; a target does so if nothing stands ``between`` the targets.
    """
    links: set[Link] = set()
    count = 0
    for weights, part_words, target_words in zip(maps, sources, targets, strict=True):
        first = min((word for word in part_words if word != NO_WORD), default=0)
        source_words = [word if word == NO_WORD else word - first for word in part_words]
        part_links = word_links(weights, source_words, target_words, near_best)
        links |= {(s + first, t + count) for s, t in part_links}
        last = max(target_words, default=NO_WORD)
        if last != NO_WORD:
            count += last + (1 if between else 0)
    return frozenset(links)
