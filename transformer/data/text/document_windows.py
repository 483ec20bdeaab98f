"""Splits documents into the longest windows of sentences (after W17-4811, which joins two)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, tee

from transformer.data.text.parallel import AnotherTarget, Pair
from transformer.data.tokenization.tags import SENTENCE_END, parse_tags, with_tags
from transformer.data.tokenization.tokenizer import Tokenizer

# Pairs encoded at once.
_CHUNK = 4_096


def begins_window(
    lengths: Iterable[Sequence[int] | None], sentences: int, subwords: int
) -> Iterator[bool]:
    """Yield for each sentence, as soon as it is read, whether it is the first of a window.

    ``lengths`` are its subwords on every side; None for a window by itself, such as the blank line
    between two documents. Windows of several have at most ``sentences``, and ``subwords`` a side.
    """
    count = 0
    filled: list[int] = []  # subwords of the window on each side, with separators
    for sides in lengths:
        if sides is None:
            count = 0
            yield True
            continue
        if 0 < count < sentences:
            grown = [old + 1 + new for old, new in zip(filled, sides, strict=True)]
            if max(grown) <= subwords:
                count += 1
                filled = grown
                yield False
                continue
        count = 1
        filled = list(sides)
        yield True


def joined_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer, sentences: int) -> Iterator[Pair]:
    """Yield a pair for each window.

    A blank pair ends a document; a pair with one blank side is a window by itself. Of a sentence
    with several targets, the window has the first.
    """
    first_targets = (pair for pair in pairs if not isinstance(pair[1], AnotherTarget))
    measured, copy = tee(_measured(first_targets, tokenizer))
    limit = tokenizer.tags.subwords - len(tokenizer.tags.indices(tokenizer.source_tags))
    begins = begins_window((lengths for _, lengths in copy), sentences, limit)
    window: list[Pair] = []
    for (pair, _), first in zip(measured, begins, strict=True):
        if first and window:
            yield _join(window)
            window = []
        if any(text.strip() for text in pair):
            window.append(pair)
    if window:
        yield _join(window)


def _measured(
    pairs: Iterable[Pair], tokenizer: Tokenizer
) -> Iterator[tuple[Pair, tuple[int, int] | None]]:
    """Yield each pair with its lengths without tags; None if a side is blank."""
    stream = iter(pairs)
    while chunk := list(islice(stream, _CHUNK)):
        sources = tokenizer.encode_source([source for source, _ in chunk])
        targets = tokenizer.encode_target([target for _, target in chunk])
        for pair, source, target in zip(chunk, sources, targets, strict=True):
            if source and target and all(text.strip() for text in pair):
                yield pair, (len(source) - tokenizer.leading_tags(source), len(target))
            else:
                yield pair, None


def _join(window: Sequence[Pair]) -> Pair:
    sources, targets = zip(*window, strict=True)
    source = with_tags(SENTENCE_END.join(sources), parse_tags(sources[0]))
    return source, SENTENCE_END.join(targets)
