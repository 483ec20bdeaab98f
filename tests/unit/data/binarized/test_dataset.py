"""Batches have the pairs of the corpus; what is drawn is a function of seed, epoch and pair."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.data.corpora import (
    data_config,
    tokenizer_config,
    translation_data,
    write_corpus,
)
from transformer.data.batching.batch_sequence import (
    BatchKey,
    ReplannedBatches,
)
from transformer.data.binarized import corpus as corpus_module
from transformer.data.binarized.corpus import EncodedCorpus, count_pairs, encode_corpus
from transformer.data.binarized.dataset import BatchDataset, SegmentationSampler
from transformer.data.datamodules.translation import TranslationData
from transformer.data.text.parallel import Corpus
from transformer.data.text.training_filters import Filters
from transformer.data.text.word_alignment import WordLinks
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.data import AugmentationConfig

ALONE: dict[str, Any] = {"texts": True, "workers": 0}
FILTERS = Filters(max_length=30, max_ratio=None, deduplicate=True)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    return list(Corpus.of(write_corpus(tmp_path_factory.mktemp("corpus")), "x", "y"))


@pytest.fixture(scope="module")
def tokenizer(pairs: list[tuple[str, str]]) -> Tokenizer:
    return Tokenizer.train(tokenizer_config(sampling=0.3), lambda: pairs)


@pytest.fixture
def corpus(
    pairs: list[tuple[str, str]],
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> EncodedCorpus:
    # So that there are several shards, of several record batches each.
    monkeypatch.setattr(corpus_module, "_CHUNK", 10)
    monkeypatch.setattr(corpus_module, "_BLOCK", 25)
    encode_corpus("train", lambda: pairs, tokenizer, None, tmp_path / "train", **ALONE)
    return EncodedCorpus(tmp_path / "train")


def test_pairs_come_back_as_they_were(
    corpus: EncodedCorpus, pairs: list[tuple[str, str]], tokenizer: Tokenizer
) -> None:
    order = np.random.default_rng(0).permutation(len(pairs))
    assert len(corpus) == len(pairs) == 81
    for side, texts, encode in (
        ("source", [pairs[index][0] for index in order], tokenizer.encode_source),
        ("target", [pairs[index][1] for index in order], tokenizer.encode_target),
    ):
        ids = encode(texts)
        assert corpus.texts(side, order) == texts
        assert [row.tolist() for row in corpus.ids(side, order)] == ids
        assert corpus.lengths(side)[order].tolist() == list(map(len, ids))


def test_batches_have_their_pairs_in_a_worker_too(
    corpus: EncodedCorpus, tokenizer: Tokenizer
) -> None:
    best = SegmentationSampler(tokenizer.with_sampling(0.0), data_config(Path()))
    chosen = BatchDataset(corpus, np.array([70, 3, 41]), best)
    batch = chosen[BatchKey(0, np.array([2, 0]))]
    texts = tokenizer.decode_target(batch.target_output.tolist())
    assert texts == corpus.texts("target", np.array([41, 70]))
    assert chosen.lengths()[0].tolist() == corpus.lengths("source")[[70, 3, 41]].tolist()
    key = BatchKey(3, np.array([1, 2, 3]))
    for made in (sampled(corpus, tokenizer), BatchDataset(corpus, np.arange(81), best)):
        copy = pickle.loads(pickle.dumps(made))
        assert torch.equal(copy[key].source, made[key].source)


def sampled(corpus: EncodedCorpus, tokenizer: Tokenizer) -> BatchDataset:
    config = data_config(Path(), batch_tokens=128, max_length=30)
    return BatchDataset(corpus, np.arange(len(corpus)), SegmentationSampler(tokenizer, config))


def reversal(pair: tuple[str, str]) -> WordLinks:
    """Each word of a text of `write_corpus` is linked to the same one, read backwards."""
    last = pair[0].count(" ")
    links = frozenset((word, last - word) for word in range(last + 1))
    return WordLinks(links, links | {(0, 0)})


def linked_corpus(pairs: list[tuple[str, str]], tokenizer: Tokenizer, path: Path) -> EncodedCorpus:
    encode_corpus(
        *("train", lambda: pairs, tokenizer, FILTERS, path),
        links=lambda: map(reversal, pairs),
        **ALONE,
    )
    return EncodedCorpus(path)


def test_links_stay_with_their_pair_when_others_are_left_out(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "_CHUNK", 2)
    pairs = [("a b", "b a"), ("", "x"), ("a b", "b a"), ("a " * 40, "b"), ("c d e", "e d c")]
    corpus = linked_corpus(pairs, tokenizer, tmp_path / "train")
    assert corpus.texts("source", np.arange(len(corpus))) == ["a b", "c d e"]
    counts = count_pairs((tmp_path / "train").glob("*.arrow"))
    assert counts == (5, {"empty": 1, "length": 1, "duplicate": 1})
    assert [links.tolist() for links in corpus.links(np.array([1, 0]))] == [
        [[0, 2], [1, 1], [2, 0]],
        [[0, 1], [1, 0]],
    ]


@pytest.mark.parametrize("drawn", [False, True])
def test_batches_carry_the_links_of_their_pieces(
    pairs: list[tuple[str, str]], tokenizer: Tokenizer, tmp_path: Path, drawn: bool
) -> None:
    """However the words are cut: a linked source piece spells a word that the target one spells."""
    corpus = linked_corpus(pairs, tokenizer, tmp_path / "train")
    spelling = tokenizer if drawn else tokenizer.with_sampling(0.0)
    sampler = SegmentationSampler(spelling, data_config(tmp_path, batch_tokens=999))
    made = BatchDataset(corpus, np.arange(len(corpus)), sampler, links=True)
    key = BatchKey(2, np.array([40, 3, 77]))
    batch = pickle.loads(pickle.dumps(made))[key]
    assert batch.alignment is not None
    for row in range(batch.size):
        spelled = [
            tokenizer.subwords(side[row].tolist()) for side in (batch.source, batch.target_output)
        ]
        for target, source in batch.alignment[row].nonzero().tolist():
            pair = spelled[0][source], spelled[1][target]
            letters = {subword.strip("\u2581") for subword in pair} - {""}
            assert len(letters) <= 1
        # Every piece of a text is part of a linked word, the ends and the padding are not.
        for side, axis in ((batch.source, 0), (batch.target_output, 1)):
            assert torch.equal(batch.alignment[row].any(axis), side[row] > 3)


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


def test_every_epoch_has_every_pair_once_and_keeps_to_the_budget(folder: Path) -> None:
    data = module(folder, sampling=0.3)
    for epoch in range(4):
        epoch_keys = keys(data, epoch)
        numbers = np.concatenate([key.pairs for key in epoch_keys])
        assert sorted(numbers) == list(range(72)) and {key.epoch for key in epoch_keys} == {epoch}
        for key in epoch_keys:
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
    reseeded = module(folder, sampling=sampling, batch_tokens=500, max_length=100, seed=4)
    assert spelled(reseeded, key) != together


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
