"""Lexical translation probabilities ``p(target | source)`` of subwords, from links or without."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from transformer.data.text.parallel import Pair
from transformer.data.text.word_alignment import WordLinks, linked_subwords
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.tokenizer import PAD

IdPair = tuple[Sequence[int], Sequence[int]]
Lexicon = tuple[Int[np.ndarray, " entry"], Float[np.ndarray, " entry"]]
"""Sorted ``source * target_vocab + target``, and the probabilities of the target."""
NULL = PAD
"""The source word of target words without a source."""

_PAIRS = 256
"""Sentence pairs of a block: its arrays fit into the cache."""


def linked_lexicon(
    texts: Iterable[Pair],
    pairs: Iterable[IdPair],
    links: Iterable[WordLinks],
    tokenizer: Tokenizer,
) -> Lexicon:
    """Relative frequencies of the links: the subwords of two linked words are all linked.

    ``pairs`` are the texts as subword ids.
    """
    width = tokenizer.target_vocab_size
    linked = [np.zeros(0, np.int64)]
    for text, (source, target), word_links in zip(texts, pairs, links, strict=True):
        source_words = tokenizer.source_words(source, text[0])
        target_words = tokenizer.target_words(target, text[1])
        sure = np.array(sorted(word_links.sure), np.int64).reshape(-1, 2)
        at_target, at_source = linked_subwords(sure, source_words, target_words).nonzero()
        linked.append(np.array(source, np.int64)[at_source] * width + np.array(target)[at_target])
    keys, counts = np.unique(np.concatenate(linked), return_counts=True)
    return keys, _normalized(keys // width, counts)


def ibm_model_1(pairs: Sequence[IdPair], width: int, iterations: int) -> Lexicon:
    """Estimate by expectation maximization, with NULL; ``width`` is the target vocabulary size.

    Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.1.
    """
    # The first array has the keys of many blocks; it is merged rarely, so each key is sorted few
    # times.
    parts = [np.zeros(0, np.int64)]
    for cells, _ in _blocks(pairs, width):
        parts.append(np.unique(cells))
        if sum(map(len, parts[1:])) > max(2**22, len(parts[0])):
            parts = [np.unique(np.concatenate(parts))]
    keys = np.unique(np.concatenate(parts))
    probabilities = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for cells, sources in _blocks(pairs, width):
            index = keys.searchsorted(cells)
            expected = probabilities[index]
            totals = np.add.reduceat(expected, np.cumsum(sources) - sources)
            np.add.at(counts, index, expected / totals.repeat(sources))
        probabilities = _normalized(keys // width, counts)
    return keys, probabilities


def _normalized(sources: np.ndarray, counts: np.ndarray) -> Float[np.ndarray, " entry"]:
    return counts / np.bincount(sources, counts)[sources]


def _blocks(pairs: Sequence[IdPair], width: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the keys of each target position with each source, and how many sources it has."""
    for start in range(0, len(pairs), _PAIRS):
        block = [
            (np.array([NULL, *source], np.int64), target)
            for source, target in pairs[start : start + _PAIRS]
        ]
        cells = [np.add.outer(target, source * width).ravel() for source, target in block]
        sizes = np.array([(len(source), len(target)) for source, target in block])
        yield np.concatenate(cells), sizes[:, 0].repeat(sizes[:, 1])
