"""Disturbed training pairs: a function of seed, epoch and pair, within the budget."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.data.corpora import (
    data_config,
    first_epoch,
    tokenizer_config,
    translation_data,
    write_corpus,
)
from transformer.common.errors import InputError
from transformer.data.batching.batch_sequence import BatchKey, ReplannedBatches
from transformer.data.datamodules.translation import TranslationData
from transformer.settings.data import AugmentationConfig

MANY = AugmentationConfig(upper=0.2, emoji=0.2, noise=0.1, joined=0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus")).parent


def module(
    folder: Path, augmentation: AugmentationConfig = MANY, sampling: float = 0.0, **changes: Any
) -> TranslationData:
    config = data_config(folder, **changes)
    tokenizer = tokenizer_config(sampling=sampling)
    made = translation_data(config, tokenizer, augmentation=augmentation)
    made.prepare_data()
    return made


def spelled(data: TranslationData, key: BatchKey) -> list[str]:
    return data.tokenizer.decode_target(data._training[key].target_output.tolist())


def keys(data: TranslationData, epoch: int) -> list[BatchKey]:
    length = data.sequence.epoch_length
    assert length is not None
    return [data.sequence[number] for number in range(epoch * length, (epoch + 1) * length)]


@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_every_epoch_has_every_pair_once_and_keeps_to_the_budget(
    folder: Path, sampling: float
) -> None:
    data = module(folder, sampling=sampling)
    for epoch in range(4):
        found = keys(data, epoch)
        numbers = np.concatenate([key.pairs for key in found])
        assert sorted(numbers) == list(range(72)) and {key.epoch for key in found} == {epoch}
        for key in found:
            batch = data._training[key]
            longest = max(batch.source.shape[1], batch.target_output.shape[1])
            assert batch.size * longest <= 96


@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_a_pair_depends_on_seed_epoch_and_number_alone(folder: Path, sampling: float) -> None:
    data = module(folder, sampling=sampling, batch_tokens=500, max_length=100)
    together = spelled(data, BatchKey(2, np.arange(10)))
    for number, text in enumerate(together):
        assert spelled(data, BatchKey(2, np.array([number]))) == [text]
    copy = pickle.loads(pickle.dumps(data._training))
    key = BatchKey(2, np.arange(10))
    assert torch.equal(copy[key].source, data._training[key].source)
    assert spelled(data, BatchKey(3, np.arange(10))) != together
    other = module(folder, sampling=sampling, batch_tokens=500, max_length=100, seed=4)
    assert spelled(other, key) != together


def test_the_changes_are_those_of_the_settings(folder: Path) -> None:
    """Pairs are read backwards on the target side; both sides of a joined pair grow alike."""
    clean = module(folder, AugmentationConfig())
    known = set[str]()
    for batch in first_epoch(clean):
        known |= set(clean.tokenizer.decode_target(batch.target_output.tolist()))
    for kind, holds in {
        "upper": str.isupper,
        "emoji": lambda text: " ".join(text.split(" ")[:-1]) in known,
        "joined": lambda text: any(
            text[:at] in known and text[at + 1 :] in known for at in range(len(text))
        ),
    }.items():
        data = module(folder, AugmentationConfig(**{kind: 1.0}), batch_tokens=400)
        texts = [text for key in keys(data, 1) for text in spelled(data, key)]
        changed = [text for text in texts if text not in known]
        assert len(texts) == 72 and len(changed) > 50 and all(map(holds, changed)), kind


def test_a_jump_to_a_batch_gives_the_batch_of_a_walk(folder: Path) -> None:
    walked = module(folder)
    walk = [walked.sequence[number] for number in range(60)]
    again = module(folder)
    for number in (47, 3, 59):
        key = again.sequence[number]
        assert (key.epoch, key.pairs.tolist()) == (walk[number].epoch, walk[number].pairs.tolist())
    assert again.sequence.identity() == walked.sequence.identity()
    other = module(folder, AugmentationConfig(title=0.01, joined=0.3))
    assert other.sequence.identity() != walked.sequence.identity()


def test_an_epoch_that_needs_more_batches_has_the_first_plan() -> None:
    """It cannot have more than the others; the clean pairs fit."""
    clean, longer = np.full(40, 5), np.full(40, 11)

    def lengths(epoch: int) -> tuple[np.ndarray, np.ndarray]:
        return (clean, clean) if epoch != 2 else (longer, longer)

    row = ReplannedBatches(lengths, batch_tokens=12, seed=1, content="")
    length = row.epoch_length
    for epoch in range(4):
        pairs = [row[number].pairs for number in range(epoch * length, (epoch + 1) * length)]
        assert sorted(np.concatenate(pairs)) == list(range(40))


def test_word_links_follow_their_words(folder: Path) -> None:
    links = folder / "links"
    lines = (folder / "text.tsv").read_text().splitlines()
    counts = [line.partition("\t")[0].count(" ") + 1 for line in lines]
    links.write_text("".join(" ".join(f"{i}-{n - 1 - i}" for i in range(n)) + "\n" for n in counts))
    config = data_config(folder, alignment=str(links), batch_tokens=900, max_length=100)
    augmentation = AugmentationConfig(joined=0.5, blanks=0.5)
    data = translation_data(config, tokenizer_config(), links=True, augmentation=augmentation)
    data.prepare_data()
    batch = data._training[BatchKey(1, np.arange(40))]
    assert batch.alignment is not None
    changed = 0
    for row in range(batch.size):
        source, target = (
            data.tokenizer.subwords(side[row].tolist())
            for side in (batch.source, batch.target_output)
        )
        for to, at in batch.alignment[row].nonzero().tolist():
            # The pieces of one letter each: a link joins a letter and itself, or a merged word.
            letters = {source[at].strip("\u2581"), target[to].strip("\u2581")} - {""}
            changed += len(letters) > 1
    assert batch.alignment.any() and changed <= batch.size * 2


def test_features_are_not_disturbed(folder: Path) -> None:
    (folder / "features.tsv").write_text("".join(f"walk{n}\tV;PST\tw{n}\n" for n in range(30)))
    config = data_config(folder, train=str(folder / "features.tsv"), features=";")
    tokenizer = tokenizer_config(algorithm="char", features=";")
    with pytest.raises(InputError, match="augmentation disturbs sentences, not features"):
        translation_data(config, tokenizer, augmentation=MANY).prepare_data()
