"""Encodes a corpus block after block, in several processes, and goes on where it was stopped.

Knows the order of the blocks and which are done; does not know what is written of them
(encoding.py). The files are the same for any number of processes.
"""

import logging
import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from transformer.data.encoding import Block, ShardWriter, counts_of
from transformer.data.filters import Filters, first_occurrences
from transformer.data.links import WordLinks
from transformer.data.tokenizer import Pairs, Tokenizer
from transformer.errors import InputError
from transformer.files import NoSpaceLeft, written_whole
from transformer.processes import end_with_parent

logger = logging.getLogger(__name__)

# Pairs of a shard: what a killed preparation loses for each process, some seconds of work.
_BLOCK = 65_536
# Seconds between two lines of the log.
_INTERVAL = 10.0

LinksOfPairs = Callable[[], Iterator[WordLinks]]
"""Called for a pass over the links of the words of each pair, in the order of the pairs."""


def encode_corpus(
    split: str,
    pairs: Pairs,
    tokenizer: Tokenizer,
    filters: Filters | None,
    folder: Path,
    *,
    links: LinksOfPairs | None = None,
    texts: bool,
    workers: int | None,
) -> None:
    """Cut a corpus into pieces and write the shards of an `EncodedCorpus`, in the text's order.

    One process at a time may do so for a folder (`cache.locked`).

    Args:
        split: its name in the log.
        pairs: called for each pass over the (source, target) text.
        tokenizer: cuts both sides.
        filters: which pairs to leave out; None keeps every line.
        folder: of the shards, which appears when it is complete. Until then they are in a folder
            beside it, ending in ``.parts``, where a second call finds what the first has done.
        links: of the words of each pair; the sure ones are written too.
        texts: whether the raw text is written too.
        workers: processes that encode; None: as many as there are cores, 0: none but this one,
            which also does alone what is no more than two shards.

    Raises:
        InputError: text or links cannot be read, the disk is full, or a process was killed.
    """
    parts = folder.with_name(f"{folder.name}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    for left in parts.glob("*.part"):  # by a killed process; none writes now, the caller has a lock
        left.unlink()
    writer = ShardWriter(parts, tokenizer, filters, texts)
    try:
        first = _first_occurrences(parts / "first.npy", pairs, filters)
        missing = _missing(split, writer, _blocks(pairs, links, first))
        _write(missing, writer, _cores() if workers is None else workers)
    except NoSpaceLeft as error:
        raise InputError(f"{error}: data.cache=FOLDER; what is ready stays for the next run") from (
            error
        )
    except BrokenProcessPool as error:
        raise InputError(
            f"{split}: a process that prepares the text was killed, perhaps for want of memory; "
            "start again, it goes on where it stopped; set data.prepare_workers lower"
        ) from error
    except InputError:  # the text will be another when it is mended
        shutil.rmtree(parts)
        raise
    (parts / "first.npy").unlink(missing_ok=True)
    read, dropped = counts_of(sorted(parts.glob("*.arrow")))
    os.replace(parts, folder)
    every = f"{split}: {read:,} pairs, every line kept"
    logger.info(every if filters is None else filters.describe(split, dropped, read))


def _first_occurrences(
    path: Path, pairs: Pairs, filters: Filters | None
) -> Bool[np.ndarray, " pair"] | None:
    """Mark the first of equal pairs of the whole corpus; a file keeps it for a second start."""
    if filters is None or not filters.deduplicate:
        return None
    if not path.exists():
        with written_whole(path) as part, part.open("wb") as file:
            np.save(file, first_occurrences(pairs()))
    first: np.ndarray = np.load(path)
    return first


def _blocks(
    pairs: Pairs, links: LinksOfPairs | None, first: Bool[np.ndarray, " pair"] | None
) -> Iterator[Block]:
    """Yield the corpus block by block; the last is shorter, and empty if it is the only one."""
    stream = iter(pairs())
    linked = None if links is None else links()
    number = 0
    while (chunk := list(islice(stream, _BLOCK))) or number == 0:
        start = number * _BLOCK
        yield Block(
            number,
            chunk,
            None if linked is None else [next(linked) for _ in chunk],
            None if first is None else first[start : start + _BLOCK],
        )
        number += 1
    if linked is not None:
        next(linked, None)  # here the file of links complains if it has lines left


def _missing(split: str, writer: ShardWriter, blocks: Iterator[Block]) -> Iterator[Block]:
    """Pass over the blocks that are done, and say how far the others are."""
    done = read = 0
    begin = last = time.monotonic()
    for block in blocks:
        now = time.monotonic()
        if now - last >= _INTERVAL:
            logger.info(
                "%s: %s pairs, %s a second",
                split,
                f"{done + read:,}",
                f"{read / (now - begin):,.0f}",
            )
            last = now
        if writer.path(block.number).exists():
            done += len(block.pairs)
            continue
        if done and not read:
            logger.info("%s: %s pairs were encoded before", split, f"{done:,}")
            begin = now
        read += len(block.pairs)
        yield block


def _write(blocks: Iterator[Block], writer: ShardWriter, workers: int) -> None:
    head = list(islice(blocks, 3))
    if workers == 0 or len(head) < 3:
        for block in chain(head, blocks):
            writer.write(block)
        return
    with ProcessPoolExecutor(workers, initializer=_begin, initargs=(writer,)) as pool:
        pending: deque[Future[None]] = deque()
        for block in chain(head, blocks):
            pending.append(pool.submit(_write_block, block))
            if len(pending) > workers:
                pending.popleft().result()
        for future in pending:
            future.result()


def _cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_writer: ShardWriter


def _begin(writer: ShardWriter) -> None:
    """Begin a process; what it needs for every block stays in it."""
    global _writer
    _writer = replace(writer, tokenizer=writer.tokenizer.in_one_thread())
    # Ctrl-C is the parent's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _write_block(block: Block) -> None:
    _writer.write(block)
