"""Measurements of the heads of a translator over sentence pairs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat

from jaxtyping import Float
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.corpora.evaluation_text import run_split
from transformer.data.text.word_alignment import Links, WordLinks, subword_words
from transformer.decoding.alignment import word_links
from transformer.decoding.forced_decoding import forced_attention
from transformer.decoding.length_bucketing import bucket_batches, pair_lengths
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.alignment_error import count_links
from transformer.evaluation.attention.head_metrics import HeadCharacter, HeadTotals, head_totals
from transformer.settings.data import DataConfig

Characters = dict[str, list[list[HeadCharacter]]]
"""Of the heads of each layer, by the kind of attention."""

Proposals = dict[tuple[int, int], list[tuple[Links, Links, Links]]]
"""Proposed, sure and possible links of each sentence, by layer and head."""


@dataclass(frozen=True)
class EncodedPair:
    """A sentence pair as subword ids without bos or eos, and its gold links if known."""

    source: list[int]
    target: list[int]
    gold: WordLinks | None = None


def corpus_pairs(
    translator: Translator, data: DataConfig, split: str, sentences: int
) -> list[EncodedPair]:
    """The first sentence pairs of a split of the run's corpus, without blank and too long pairs."""
    text = run_split(data, split, training=True)
    pairs = translator.tokenizer.encode_pairs(list(islice(text, sentences)))
    gold = text.word_links() if text.links is not None else repeat(None)
    limit = translator.model.max_length or sys.maxsize
    encoded = [
        EncodedPair(source, target, links)
        for (source, target), links in zip(pairs, islice(gold, len(pairs)), strict=True)
        if source and target and max(len(source), len(target)) < limit
    ]
    if not encoded:
        raise InputError(
            f"the first {sentences} lines of split={split} hold no sentence pair to measure on"
        )
    return encoded


def survey(translator: Translator, pairs: Sequence[EncodedPair]) -> Characters:
    """Measure every head under teacher forcing, those of the cross-attention also by gold links."""
    totals: dict[str, list[HeadTotals]] = {}
    proposed: Proposals = {}
    known = all(pair.gold is not None for pair in pairs)
    lengths = pair_lengths((pair.source, pair.target) for pair in pairs)
    for indices in bucket_batches(lengths, translator.batch_tokens):
        batch = [pairs[index] for index in indices]
        sources, targets = [pair.source for pair in batch], [pair.target for pair in batch]
        _, seen = forced_attention(translator.model, sources, targets)
        for kind, attended in seen.items():
            layers = [
                head_totals(weights, attended.visible, attended.separator)
                for weights in attended.weights
            ]
            if kind in totals:
                layers = [old + new for old, new in zip(totals[kind], layers, strict=True)]
            totals[kind] = layers
        if known:
            _propose(proposed, seen["cross"].weights, batch, translator)
    characters = {kind: [layer.characters() for layer in layers] for kind, layers in totals.items()}
    if known:
        characters["cross"] = [
            [
                replace(character, alignment_error=count_links(proposed[layer, head]).error_rate)
                for head, character in enumerate(heads)
            ]
            for layer, heads in enumerate(characters["cross"])
        ]
    return characters


def _propose(
    proposed: Proposals,
    layers: Sequence[Float[Tensor, "batch head target source"]],
    pairs: Sequence[EncodedPair],
    translator: Translator,
) -> None:
    tokenizer, near_best = translator.tokenizer, translator.aligner.near_best
    for row, pair in enumerate(pairs):
        sure, possible = pair.gold or ((), ())
        source_words = subword_words(tokenizer.source_subwords(pair.source))
        target_words = subword_words(tokenizer.subwords(pair.target))
        for layer, weights in enumerate(layers):
            real = weights[row, :, : len(target_words), : len(source_words)].float().cpu()
            for head, one in enumerate(real):
                links = word_links(one, source_words, target_words, near_best)
                proposed.setdefault((layer, head), []).append(
                    (links, frozenset(sure), frozenset(possible))
                )
