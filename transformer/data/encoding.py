"""Cuts a corpus into pieces and writes them to an Arrow file, which `EncodedCorpus` reads.

Knows texts, ids and links; does not know where the text came from, nor batches.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from transformer.data.cache import written_whole
from transformer.data.filters import Filters, Selection
from transformer.data.links import WordLinks
from transformer.data.tokenizer import Pairs, Tokenizer

logger = logging.getLogger(__name__)

# Pairs encoded at once, and a record batch of the file: some 10 MB of memory.
_CHUNK = 16_384

# The columns of a pair: both texts, both rows of ids, and its links where they are wanted.
_Row = tuple[Any, ...]

LinksOfPairs = Callable[[], Iterator[WordLinks]]
"""Called for a pass over the links of the words of each pair, in the order of the pairs."""


def encode_corpus(
    split: str,
    pairs: Pairs,
    tokenizer: Tokenizer,
    filters: Filters | None,
    path: Path,
    *,
    links: LinksOfPairs | None = None,
) -> None:
    """Cut a corpus into pieces and write texts and ids to an Arrow file, in the order of the text.

    Args:
        split: its name in the log.
        pairs: called for each pass over the (source, target) text.
        tokenizer: cuts both sides.
        filters: which pairs to leave out; None keeps every line.
        path: the file, which appears when it is complete.
        links: of the words of each pair; the sure ones are written too.

    Raises:
        InputError: text or links cannot be read, or the filters leave nothing of it.
    """
    from datasets import Features, List, Value
    from datasets.arrow_writer import ArrowWriter

    ids, text = List(Value("int32")), Value("string")
    columns = {"source_text": text, "target_text": text, "source": ids, "target": ids}
    features = Features(columns if links is None else columns | {"links": ids})
    selection = Selection(filters, pairs)
    with written_whole(path) as part, ArrowWriter(features=features, path=str(part)) as writer:
        for rows in _encoded(pairs, tokenizer, links):
            kept = [row for row in rows if selection.keeps(len(row[2]), len(row[3]))]
            if kept:
                filled = zip(features, map(list, zip(*kept, strict=True)), strict=True)
                writer.write_batch(dict(filled), writer_batch_size=_CHUNK)
        writer.finalize()
    logger.info(selection.describe(split))


def _encoded(
    pairs: Pairs, tokenizer: Tokenizer, links: LinksOfPairs | None
) -> Iterator[list[_Row]]:
    """Yield the rows of a chunk of pairs after the other."""
    stream = iter(pairs())
    linked = None if links is None else links()
    while chunk := list(islice(stream, _CHUNK)):
        sources, targets = map(list, zip(*chunk, strict=True))
        ids = tokenizer.encode_source(sources), tokenizer.encode_target(targets)
        columns: list[Sequence[Any]] = [sources, targets, *ids]
        if linked is not None:
            columns.append([_flat(next(linked)) for _ in chunk])
        yield list(zip(*columns, strict=True))
    if linked is not None:
        next(linked, None)  # here the file of links complains if it has lines left


def _flat(links: WordLinks) -> list[int]:
    """Return source and target words by turns."""
    return [word for link in sorted(links.sure) for word in link]
