"""Encoded sentence pairs: text to Arrow files, and the files as memory maps.

A folder of a corpus has a shard for each block of pairs. Its columns are lists of token ids
(``source``, ``target``), and, if they are needed, the text of both sides and word links. Sources of
files are lists of vectors: of sounds and pictures in float16, precise to 0.0005 of a log-mel, of
arrays in float32.
"""

import json
import logging
import os
import shutil
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int

from transformer.common.errors import InputError
from transformer.common.files import NoSpaceLeft, written_whole
from transformer.common.processes import begin_pool_process
from transformer.data.batching.batch_sequence import Lengths
from transformer.data.text.parallel import Pair
from transformer.data.text.training_filters import Filters, first_occurrences
from transformer.data.text.word_alignment import WordLinks
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.data.tokenization.vocabulary import Pairs

logger = logging.getLogger(__name__)


SIDES = ("source", "target")


Indices = Int[np.ndarray, " batch"]


class EncodedCorpus:
    """Encoded pairs: shards of `encode_corpus` as memory maps, whose pages the workers share."""

    def __init__(self, *parts: Path | pa.RecordBatch) -> None:
        """Join folders of shards, and batches in memory; InputError if a shard is damaged."""
        self._parts = parts
        self._batches: list[pa.RecordBatch] = []
        for part in parts:
            if isinstance(part, Path):
                shards = map(_mapped, sorted(part.glob("*.arrow")))
                self._batches += chain.from_iterable(shards)
            else:
                self._batches.append(part)
        # Values and offsets of each batch, which are not copied.
        self._columns: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for name in ("source", "target", "links"):
            if all(name in batch.schema.names for batch in self._batches):
                columns = [batch.column(name) for batch in self._batches]
                self._columns[name] = [
                    (_numbers(column.values), column.offsets.to_numpy()) for column in columns
                ]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def __reduce__(self) -> tuple[type["EncodedCorpus"], tuple[Path | pa.RecordBatch, ...]]:
        return type(self), self._parts

    def __len__(self) -> int:
        return int(self._starts[-1])

    def lengths(self, side: str) -> Int[np.ndarray, " pair"]:
        """Return the number of subwords of each pair on a side ("source" or "target")."""
        parts = [np.diff(offsets) for _, offsets in self._columns[side]]
        return np.concatenate(parts or [np.zeros(0, dtype=np.int32)])

    def sides_lengths(self) -> Lengths:
        return self.lengths("source"), self.lengths("target")

    def frequency(self, side: str, token: int) -> int:
        return sum(int((values == token).sum()) for values, _ in self._columns[side])

    def ids(self, side: str, pairs: Indices) -> list[np.ndarray]:
        """Return the subword ids of some pairs on a side, without bos or eos; or vectors."""
        column = self._columns[side]
        ids = []
        for batch, row in self._indices(pairs):
            values, offsets = column[batch]
            ids.append(values[offsets[row] : offsets[row + 1]])
        return ids

    def links(self, pairs: Indices) -> list[np.ndarray]:
        """Return the (source word, target word) links of pairs; KeyError without a links column."""
        return [row.reshape(-1, 2) for row in self.ids("links", pairs)]

    def texts(self, side: str, pairs: Indices) -> list[str]:
        """Return the raw texts of pairs on a side; KeyError without text columns."""
        columns = [batch.column(f"{side}_text") for batch in self._batches]
        return [columns[batch][row].as_py() for batch, row in self._indices(pairs)]

    def select(self, pairs: Indices) -> "EncodedCorpus":
        """Return a copy of some pairs of a corpus that is one batch in memory."""
        (batch,) = self._batches
        return EncodedCorpus(batch.take(pa.array(pairs)))

    def _indices(self, pairs: Indices) -> Iterator[tuple[int, int]]:
        """Yield the batch of each pair, and its row in the batch."""
        batch = np.searchsorted(self._starts, pairs, side="right") - 1
        return zip(batch.tolist(), (pairs - self._starts[batch]).tolist(), strict=True)


def _numbers(values: pa.Array) -> np.ndarray:
    """The token ids of all pairs, or their vectors, without a copy."""
    if pa.types.is_fixed_size_list(values.type):
        return values.values.to_numpy().reshape(-1, values.type.list_size)
    return values.to_numpy()


def _mapped(path: Path) -> list[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path}: damaged ({error}); delete {path.parent}, it will be made again"
        ) from error


LinksOfPairs = Callable[[], Iterator[WordLinks]]


# Pairs of a shard: the work that a killed process loses, some seconds.
_BLOCK = 65_536
# Those whose source is a file, of which a second of sound has 32 kB.
_FILES_BLOCK = 256


# Seconds between two log messages.
_INTERVAL = 10.0


# Pairs encoded at once: some 10 MB of memory; fewer of files.
_CHUNK = 16_384
_FILES_CHUNK = 64


_COUNTS = b"counts"


class Block(NamedTuple):
    """Consecutive pairs of a corpus."""

    number: int
    pairs: list[Pair]
    links: list[WordLinks] | None
    first: Bool[np.ndarray, " pair"] | None


@dataclass(frozen=True)
class ShardWriter:
    """Writes blocks to a folder, each as a file, atomically."""

    folder: Path
    tokenizer: Tokenizer
    filters: Filters | None
    texts: bool
    """Whether the raw text is written too, for subword sampling."""

    def path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.arrow"

    def write(self, block: Block) -> None:
        """Encode a block and write the kept pairs, always as the same bytes; raises NoSpaceLeft."""
        batch, kept, dropped = encode(
            block.pairs, self.tokenizer, self.filters, block.first, texts=self.texts
        )
        if block.links is not None:
            # (source word, target word), … -> source word, target word, …
            links = [[*chain.from_iterable(sorted(block.links[index].sure))] for index in kept]
            batch = batch.append_column("links", _lists(links))
        counts = json.dumps({"read": len(block.pairs), "dropped": dropped})
        batch = batch.replace_schema_metadata({_COUNTS: counts})
        with (
            written_whole(self.path(block.number)) as part,
            pa.OSFile(str(part), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as writer,
        ):
            writer.write_batch(batch)


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

    A second call resumes from ``FOLDER.parts``. Without ``filters`` every line is kept. Only sure
    ``links`` are written. ``workers`` is the number of processes: None is one for each core, 0 is
    this process, which also encodes a corpus of up to two shards.
    """
    parts = folder.with_name(f"{folder.name}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    for unfinished in parts.glob("*.part"):  # of killed processes; the caller has a lock
        unfinished.unlink()
    writer = ShardWriter(parts, tokenizer, filters, texts)
    with _errors_of_encoding(split, parts):
        deduplicate = filters is not None and filters.deduplicate
        first = first_occurrences(pairs()) if deduplicate else None
        size = _FILES_BLOCK if tokenizer.reads_files else _BLOCK
        missing = _missing(split, writer, _blocks(pairs, links, first, size))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        _write(missing, writer, (cores or 1) if workers is None else workers)
    os.replace(parts, folder)
    if filters is None:
        read, _ = count_pairs(folder.glob("*.arrow"))
        logger.info("%s: %s pairs, every line kept", split, f"{read:,}")


@contextmanager
def _errors_of_encoding(split: str, parts: Path) -> Iterator[None]:
    """Explain errors, and delete the encoded parts if the text has to change."""
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
    pairs: Pairs,
    links: LinksOfPairs | None,
    first: Bool[np.ndarray, " pair"] | None,
    size: int = _BLOCK,
) -> Iterator[Block]:
    """Yield the corpus in blocks; the last is shorter, and empty if it is the only one."""
    stream = iter(pairs())
    linked = None if links is None else links()
    number = 0
    while (chunk := list(islice(stream, size))) or number == 0:
        start = number * size
        yield Block(
            number,
            chunk,
            None if linked is None else [next(linked) for _ in chunk],
            None if first is None else first[start : start + size],
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


class Encoded(NamedTuple):
    """The pairs that are kept, their indices, and the number of others by reason."""

    batch: pa.RecordBatch
    kept: list[int]
    dropped: Counter[str]


def encode(
    pairs: Sequence[Pair],
    tokenizer: Tokenizer,
    filters: Filters | None,
    first: Bool[np.ndarray, " pair"] | None,
    *,
    texts: bool,
) -> Encoded:
    """Encode pairs; ``filters`` None keeps all, ``first`` marks the first of equal pairs."""
    kept: list[int] = []
    dropped = Counter[str]()
    # Arrays take a tenth of the memory of lists.
    sources: list[Any] = []
    targets: list[array[int]] = []
    size = _CHUNK
    dtype: type[np.floating[Any]] | None = None
    if tokenizer.reads_files:
        size = _FILES_CHUNK
        # NaN stays NaN. Arrays may have any numbers.
        is_array = tokenizer.vector_source.config.kind == "vectors"
        dtype = np.float32 if is_array else np.float16
    for start in range(0, len(pairs), size):
        chunk = pairs[start : start + size]
        for index, (source, target) in enumerate(tokenizer.encode_pairs(chunk), start):
            reason = None if filters is None else filters.reason(len(source), len(target))
            if reason is None and first is not None and not first[index]:
                reason = "duplicate"
            if reason is not None:
                dropped[reason] += 1
                continue
            kept.append(index)
            sources.append(array("i", source) if dtype is None else source.astype(dtype))
            targets.append(array("i", target))
    columns: dict[str, Any] = {
        "source": _lists(sources)
        if dtype is None
        else _vectors(sources, tokenizer.source_vocab_size, dtype),
        "target": _lists(targets),
    }
    if texts:
        for number, side in enumerate(SIDES):
            text = [pairs[index][number] for index in kept]
            columns[f"{side}_text"] = pa.array(text, pa.string())
    return Encoded(pa.RecordBatch.from_pydict(columns), kept, dropped)


def _lists(rows: Sequence[Sequence[int]]) -> pa.ListArray:
    bounds = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=bounds[1:])
    subwords = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(bounds[-1]))
    return pa.ListArray.from_arrays(bounds, subwords)


def _vectors(
    rows: Sequence[np.ndarray], channels: int, dtype: type[np.floating[Any]]
) -> pa.ListArray:
    """A column of sequences of vectors."""
    bounds = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=bounds[1:])
    joined = np.concatenate([np.zeros((0, channels), dtype=dtype), *rows])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(joined.ravel()), channels)
    return pa.ListArray.from_arrays(bounds, vectors)


def count_pairs(shards: Iterable[Path]) -> tuple[int, Counter[str]]:
    """Return the number of pairs read for some shards, and of those left out by reason."""
    read = 0
    dropped = Counter[str]()
    for shard in shards:
        with pa.memory_map(str(shard)) as file:
            counts = json.loads(pa.ipc.open_file(file).schema.metadata[_COUNTS])
        read += counts["read"]
        dropped.update(counts["dropped"])
    return read, dropped
