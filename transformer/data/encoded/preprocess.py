"""Encodes a corpus in blocks, in several processes, and resumes after an interruption."""

import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from transformer.common.errors import InputError
from transformer.common.files import NoSpaceLeft
from transformer.common.processes import begin_pool_process
from transformer.data.encoded.arrow_writer import Block, ShardWriter, count_subwords
from transformer.data.text.training_filters import Filters, first_occurrences
from transformer.data.text.word_alignment import WordLinks
from transformer.data.tokenization.tokenizer import Pairs, Tokenizer

logger = logging.getLogger(__name__)

# Pairs of a shard: the work that a killed process loses, some seconds.
_BLOCK = 65_536
# Seconds between two log messages.
_INTERVAL = 10.0

LinksOfPairs = Callable[[], Iterator[WordLinks]]


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
    """Encode a corpus and write the shards of an `EncodedCorpus`, in order, under `cache.locked`.

    Args:
        split: its name in the log.
        pairs: called for each pass over the (source, target) text.
        filters: which pairs to leave out; None keeps every line.
        folder: of the shards, once complete; a second call resumes from ``FOLDER.parts``.
        links: called for each pass over the word links of the pairs; the sure ones are written.
        texts: whether the raw text is written too.
        workers: processes that encode; None: as many as cores, 0 (or up to two shards): this one.
    """
    parts = folder.with_name(f"{folder.name}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    for left in parts.glob("*.part"):  # of killed processes; the caller has a lock
        left.unlink()
    writer = ShardWriter(parts, tokenizer, filters, texts)
    with _explained(split, parts):
        deduplicate = filters is not None and filters.deduplicate
        first = first_occurrences(pairs()) if deduplicate else None
        missing = _missing(split, writer, _blocks(pairs, links, first))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        _write(missing, writer, (cores or 1) if workers is None else workers)
    os.replace(parts, folder)
    if filters is None:
        read, _ = count_subwords(folder.glob("*.arrow"))
        logger.info("%s: %s pairs, every line kept", split, f"{read:,}")


@contextmanager
def _explained(split: str, parts: Path) -> Iterator[None]:
    """Explain errors, and delete the parts of a text that has to change."""
    try:
        yield
    except BrokenProcessPool as error:
        raise InputError(
            f"{split}: a process that prepares the text was killed, perhaps out of memory; set "
            "data.prepare_workers lower and start again, it resumes"
        ) from error
    except InputError as error:
        if not isinstance(error, NoSpaceLeft):  # the text will change
            shutil.rmtree(parts)
        raise


def _blocks(
    pairs: Pairs, links: LinksOfPairs | None, first: Bool[np.ndarray, " pair"] | None
) -> Iterator[Block]:
    """Yield the corpus in blocks; the last is shorter, and empty if it is the only one."""
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
        next(linked, None)  # raises an error if the file of links has more lines


def _missing(split: str, writer: ShardWriter, blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks that are not done, and log the progress."""
    done = read = 0
    begin = last = time.monotonic()
    for block in blocks:
        now = time.monotonic()
        if now - last >= _INTERVAL:
            speed = read / (now - begin)
            logger.info("%s: %s pairs, %s a second", split, f"{done + read:,}", f"{speed:,.0f}")
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
    writer = replace(writer, tokenizer=writer.tokenizer.in_one_thread())
    with ProcessPoolExecutor(workers, initializer=begin_pool_process) as pool:
        pending: deque[Future[None]] = deque()
        for block in chain(head, blocks):
            pending.append(pool.submit(writer.write, block))
            if len(pending) > workers:
                pending.popleft().result()
        for future in pending:
            future.result()
