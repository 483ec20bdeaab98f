"""Shards of every kind, and a stream of them, for the tests of this folder."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import Dataset

from tests.helpers.data.corpora import SENTENCES, data_config, tokenizer_config, translation_data
from transformer.data.batching.batch import PaddedBatch
from transformer.data.batching.batch_sequence import RankAssignment
from transformer.data.batching.loader import UpdateLoader
from transformer.data.datamodules.translation import TranslationData
from transformer.data.streaming.streamed_batches import StreamedKey
from transformer.settings.data import AugmentationConfig

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
) -> TranslationData:
    fields = {
        "streaming": True,
        "buffer": 20,
        "train": str(folder / "part-*.tsv") if train is None else train,
        "validation": str(folder / "val.tsv"),
    }
    config = data_config(folder, **(fields | changes))
    tokenizer = tokenizer_config(sampling=sampling)
    return translation_data(config, tokenizer, augmentation=augmentation)  # type: ignore[return-value]


def texts(module: TranslationData, numbers: range) -> list[str]:
    batches = (module._training[module.sequence[number]] for number in numbers)
    rows = [row for batch in batches for row in batch.target_output.tolist()]
    return module.tokenizer.decode_target(rows)


def epoch_of(module: TranslationData, epoch: int) -> range:
    """The numbers of the batches of an epoch."""
    epochs = []
    while not epochs or epochs[-1] <= epoch:
        epochs.append(module.sequence[len(epochs)].epoch)
    return range(epochs.index(epoch), len(epochs) - 1)


def state_at(module: TranslationData, number: int) -> dict[str, Any]:
    """The state of the stream of one rank, as a checkpoint has it, at a batch."""
    state = module.sequence.state_dict(number, lambda value: [value])
    return json.loads(json.dumps(state))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Read:
    """A batch that a rank was given."""

    number: int
    epoch: int
    pairs: tuple[int, ...]


class _Keys(Dataset[PaddedBatch]):
    """The epoch and the numbers of the pairs, in place of their subwords."""

    def __getitem__(self, key: StreamedKey) -> PaddedBatch:
        return PaddedBatch(torch.tensor([[key.epoch, *key.pairs.tolist()]]))


class Ranks:
    """The ranks of a training, in this process: each has its own data module and loader."""

    def __init__(
        self,
        make: Callable[[], TranslationData],
        ranks: int,
        accumulation: int = 1,
        state: dict[str, Any] | None = None,
        done: int = 0,
    ) -> None:
        self.modules = [make() for _ in range(ranks)]
        self.done = done
        self._gathered: list[Any] = []
        self.loaders = [
            UpdateLoader(
                _Keys(),
                module.sequence,
                assignment=RankAssignment(ranks, accumulation),
                rank=rank,
                done=lambda: self.done,
                workers=0,
                pin_memory=False,
                gather=self._gather,
            )
            for rank, module in enumerate(self.modules)
        ]
        if state is not None:
            for loader in self.loaders:
                loader.load_state_dict(state)
        self._updates = [iter(loader) for loader in self.loaders]

    def train(self, updates: int) -> list[list[Read]]:
        """Return the batches of some updates, one list for each rank."""
        trained: list[list[Read]] = []
        for updates_of_rank in self._updates:
            taken: list[Read] = []
            for update in islice(updates_of_rank, updates):
                for number, batch in zip(update.numbers, update.batches, strict=True):
                    epoch, *pairs = batch.source.flatten().tolist()
                    taken.append(Read(number, epoch, tuple(pairs)))
            trained.append(taken)
        self.done += updates
        return trained

    def state(self) -> dict[str, Any]:
        """Return the state of a checkpoint, with the positions of all ranks."""
        self._gathered = []
        states = [loader.state_dict() for loader in self.loaders]
        return json.loads(json.dumps(states[-1]))  # type: ignore[no-any-return]

    def _gather(self, value: Any) -> list[Any]:
        self._gathered.append(value)
        return self._gathered

    def close(self) -> None:
        for module in self.modules:
            module.teardown("fit")
