"""Shards of every kind, and a stream of them, for the tests of this folder."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.data.corpora import SENTENCES, data_config, tokenizer_config, translation_data
from transformer.data.datamodules.streaming import StreamedData
from transformer.settings.augmentation import AugmentationConfig

PAIRS = [(f"{a} {b}", f"{a} {b}"[::-1]) for a in SENTENCES for b in SENTENCES]
PARTS = (PAIRS[:30], PAIRS[30:31], PAIRS[31:])


def write(path: Path, pairs: list[tuple[str, str]]) -> None:
    """One shard, of the kind its name says."""
    if path.suffix == ".parquet":
        columns = {"x": [source for source, _ in pairs], "y": [target for _, target in pairs]}
        return pq.write_table(pa.table(columns), path, row_group_size=7)
    if ".jsonl" in path.name:
        lines = [json.dumps({"x": source, "y": target}) for source, target in pairs]
    elif ".tsv" in path.name:
        lines = ["\t".join(pair) for pair in pairs]
    else:
        side = path.suffix == ".y"
        lines = [pair[side] for pair in pairs]
    # The last line has no end, which is no reason to lose it.
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def write_shards(folder: Path) -> Path:
    """Write `PARTS` as shards of every kind, and a validation text."""
    for suffix in ("tsv", "tsv.gz", "jsonl", "parquet", "x", "y"):
        for number, part in enumerate(PARTS):
            write(folder / f"part-{number}.{suffix}", part)
    write(folder / "val.tsv", PAIRS[:9])
    return folder


def stream(
    folder: Path,
    train: Any = None,
    sampling: float = 0.0,
    augmentation: AugmentationConfig | None = None,
    **changes: Any,
) -> StreamedData:
    given = str(folder / "part-*.tsv") if train is None else train
    changes = {"streaming": True, "buffer": 20, "validation": str(folder / "val.tsv")} | changes
    config = data_config(folder, train=given, **changes)
    tokenizer = tokenizer_config(sampling=sampling)
    return translation_data(config, tokenizer, augmentation=augmentation)  # type: ignore[return-value]


def texts(module: StreamedData, numbers: range) -> list[str]:
    batches = (module._training[module.row[number]] for number in numbers)
    return [t for b in batches for t in module.tokenizer.decode_target(b.target_output.tolist())]


def epoch_of(module: StreamedData, epoch: int) -> range:
    """The numbers of the batches of an epoch."""
    number, found = 0, []
    while (key := module.row[number]).epoch <= epoch:
        found += [number] if key.epoch == epoch else []
        number += 1
    return range(found[0], found[-1] + 1)
