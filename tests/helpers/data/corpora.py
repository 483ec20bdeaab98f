"""A tiny corpus and a TranslationData over it, for the tests of this folder."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from transformer.data.corpora.resolve import find_splits
from transformer.data.datamodules.base import BatchModule
from transformer.data.datamodules.translation import TranslationData
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.data import AugmentationConfig, DataConfig
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import TokenizerConfig
from transformer.settings.training import LossConfig

SENTENCES = ["a b c", "b c d e", "c a", "d d d a b", "e", "a e c b", "b a", "c c d", "d e a b c"]


def write_corpus(folder: Path) -> Path:
    """Write 81 pairs, the target each time the source read backwards, and return the TSV file."""
    lines = [f"{first} {second}" for first in SENTENCES for second in SENTENCES]
    path = folder / "text.tsv"
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    return path


def data_config(folder: Path, **changes: Any) -> DataConfig:
    """Configure the corpus of `write_corpus`; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "corpus": "files",
        "source": "x",
        "target": "y",
        "train": str(folder / "text.tsv"),
        "validation_size": 9,
        "test_size": 0,
        "batch_tokens": 96,
        "max_length": 50,
        "max_ratio": None,
        "max_left_out": 1.0,
        "buffer": 100,
        "prepare_workers": 0,
        "seed": 3,
        "cache": str(folder / "cache"),
    }
    return DataConfig(**(fields | changes))


def tokenizer_config(**changes: Any) -> TokenizerConfig:
    """Configure a vocabulary of a few letters; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "algorithm": "unigram",
        "vocab_size": 268,
        "character_coverage": 1.0,
        "max_sentences": 1000,
    }
    return TokenizerConfig(**(fields | changes))


def data_module(
    folder: Path, sampling: float = 0.0, initial_tokenizer: Tokenizer | None = None, **changes: Any
) -> TranslationData:
    """Make a TranslationData over `write_corpus`; ``changes`` replace fields of its DataConfig."""
    return translation_data(
        data_config(folder, **changes),
        tokenizer_config(sampling=sampling),
        initial_tokenizer=initial_tokenizer,
    )


def translation_data(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    *,
    initial_tokenizer: Tokenizer | None = None,
    links: bool = False,
    augmentation: AugmentationConfig | None = None,
) -> TranslationData:
    """The data of a run with these groups of its config, and with word ``links`` or without."""
    config = data_run(data, tokenizer, links=links, augmentation=augmentation)
    return TranslationData(config, initial_tokenizer)


def data_run(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    *,
    links: bool = False,
    augmentation: AugmentationConfig | None = None,
    positions: int | None = None,
) -> RunConfig:
    """The config of a run; with ``positions``, the model learns so many."""
    config = RunConfig(
        data=data,
        tokenizer=tokenizer,
        loss=LossConfig(alignment_weight=1.0 if links else 0.0),
        augmentation=augmentation or AugmentationConfig(),
    )
    if positions is None:
        return config
    model = replace(config.model, positions="learned", max_length=positions)
    return replace(config, model=model)


def first_epoch(module: BatchModule) -> list[Any]:
    """The batches of the first epoch, on one rank without accumulation."""
    updates = islice(module.train_dataloader(), module.sequence.epoch_length)
    return [batch for update in updates for batch in update.batches]


def pairs_of(folder: Path, **changes: Any) -> dict[str, list[tuple[str, str]]]:
    """Find the pairs of each split of the corpus of `write_corpus`."""
    found = find_splits(data_config(folder, **changes))
    return {name: list(split) for name, split in found.items()}
