"""Count the pairs of a stream that 1, 2, 4 and 8 ranks encode, and time what a rank skips.

    python benchmarks/data/shared_streams.py [--pairs N] [--buffer N] [--batches N] [--folder DIR]

The ranks are simulated one after another in this process, without a model: together they take the
same number of batches. The second table is the CPU time of a pair that a rank reads, filters and
encodes, and of one of another rank, in shards of each kind.
"""

import argparse
import gzip
import time
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.made_up_text import write_text
from transformer.cli.config import compose_config, run_settings
from transformer.data.batching.batch_sequence import RankAssignment
from transformer.data.batching.loader import UpdateLoader
from transformer.data.datamodules.translation import TranslationData
from transformer.data.streaming.shards import Position, find_shards
from transformer.data.streaming.streamed_batches import Buffer, BufferReader, StreamedBatches
from transformer.settings.data import AugmentationConfig

ROOT = Path(__file__).resolve().parents[2]
RANKS = (1, 2, 4, 8)
SHARDS = 8
BUFFERS = 20


class CountingReader(BufferReader):
    """Counts the pairs that it reads, filters and encodes."""

    encoded = 0

    def fill(self, position: Position, rank: int = 0, ranks: int = 1) -> Buffer:
        buffer = super().fill(position, rank, ranks)
        self.encoded += buffer.read
        return buffer


class Stream:
    """A stream of shards that are made for it."""

    def __init__(self, folder: Path, pairs: int, buffer: int) -> None:
        for shard in range(SHARDS):
            write_text(folder / f"train-{shard}.tsv", pairs // SHARDS, seed=shard + 3)
        write_text(folder / "val.tsv", 20, seed=2)
        overrides = [
            "data=files",
            "data.streaming=true",
            f"data.train={folder}/train-*.tsv",
            f"data.validation={folder}/val.tsv",
            f"data.cache={folder}/cache",
            f"data.buffer={buffer}",
            "trainer.max_steps=1",
        ]
        config = run_settings(compose_config("train", overrides))
        self.config = config.data
        self.data = TranslationData(config)
        self.tokenizer = self.data.tokenizer
        self._training = self.data._training

    def reader(self, train: str) -> CountingReader:
        """A reader of some shards."""
        shards = find_shards(train, ("source", "target"))
        return CountingReader(shards, self.config, self.tokenizer, AugmentationConfig())

    def counts(self, train: str, ranks: int, batches: int) -> list[tuple[int, int]]:
        """Pairs trained on and encoded by each rank, of so many batches together."""
        counts = []
        for rank in range(ranks):
            reader = self.reader(train)
            loader = UpdateLoader(
                self._training,
                StreamedBatches(reader, "made up"),
                assignment=RankAssignment(ranks, 1),
                rank=rank,
                done=lambda: 0,
                workers=0,
                pin_memory=False,
            )
            trained = sum(u.batches[0].size for u in islice(loader, batches // ranks))
            counts.append((trained, reader.encoded))
        return counts


def write_kinds(folder: Path, pairs: int) -> dict[str, Path]:
    """Write the same text as a shard of each kind, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    kinds = {kind: folder / f"all{kind}" for kind in (".tsv", ".tsv.gz", ".parquet")}
    write_text(kinds[".tsv"], pairs, seed=9)
    text = kinds[".tsv"].read_bytes()
    kinds[".tsv.gz"].write_bytes(gzip.compress(text))
    lines = [line.split("\t") for line in text.decode().splitlines()]
    columns = {"source": [line[0] for line in lines], "target": [line[1] for line in lines]}
    pq.write_table(pa.table(columns), kinds[".parquet"])
    return kinds


def cpu_seconds(reader: BufferReader) -> tuple[float, float]:
    """CPU seconds of a pair that is encoded, and of one that is skipped."""
    position = reader.fill(Position()).next
    begin = time.process_time()
    position = reader.fill(position).next
    middle = time.process_time()
    for _ in range(BUFFERS):
        position = reader.skip(position)
    end = time.process_time()
    return (middle - begin) / reader.data.buffer, (end - middle) / BUFFERS / reader.data.buffer


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=80_000)
    parser.add_argument("--buffer", type=int, default=2_000)
    parser.add_argument("--batches", type=int, default=320)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "shared_streams")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    stream = Stream(folder, arguments.pairs, arguments.buffer)
    print("| ranks | pairs trained on | pairs encoded | by one rank, at most |")
    print("| ---: | ---: | ---: | ---: |")
    for ranks in RANKS:
        counts = stream.counts(f"{folder}/train-*.tsv", ranks, arguments.batches)
        trained, encoded = (sum(column) for column in zip(*counts, strict=True))
        most = max(each for _, each in counts)
        print(f"| {ranks} | {trained:,} | {encoded:,} | {most:,} |")
    print("\n| CPU time a pair, µs | encoded | skipped |")
    print("| --- | ---: | ---: |")
    for kind, path in write_kinds(folder / "kinds", (BUFFERS + 3) * arguments.buffer).items():
        encodes, skips = (1e6 * each for each in cpu_seconds(stream.reader(str(path))))
        print(f"| `{kind}` | {encodes:.1f} | {skips:.3f} |")


if __name__ == "__main__":
    main()
