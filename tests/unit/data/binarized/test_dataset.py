"""The Arrow files hold what the tokenizer gives, and the batches are made of them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.data.corpora import data_config, tokenizer_config, write_corpus
from transformer.common.errors import InputError
from transformer.data.batching.batch_sequence import BatchKey, BatchPlan, PlannedBatches
from transformer.data.binarized import corpus as corpus_module
from transformer.data.binarized.corpus import EncodedCorpus, count_pairs, encode_corpus
from transformer.data.binarized.dataset import BatchDataset, SegmentationSampler
from transformer.data.text.parallel import Corpus
from transformer.data.text.training_filters import Filters
from transformer.data.text.word_alignment import WordLinks, read_links
from transformer.data.tokenization.tokenizer import Tokenizer

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


def sampled(
    corpus: EncodedCorpus, tokenizer: Tokenizer, seed: int = 5, **changes: Any
) -> BatchDataset:
    config = data_config(Path(), seed=seed, batch_tokens=128, max_length=30, **changes)
    return BatchDataset(corpus, np.arange(len(corpus)), SegmentationSampler(tokenizer, config))


def test_a_drawn_batch_depends_on_seed_epoch_and_pair_alone(
    corpus: EncodedCorpus, tokenizer: Tokenizer
) -> None:
    drawn = sampled(corpus, tokenizer)
    together = drawn[BatchKey(1, np.array([7, 8]))].source
    alone = drawn[BatchKey(1, np.array([8]))].source
    length = alone.shape[1]
    assert torch.equal(together[1, :length], alone[0])
    assert not torch.equal(drawn[BatchKey(2, np.array([8]))].source, alone)
    assert not torch.equal(sampled(corpus, tokenizer, 6)[BatchKey(1, np.array([8]))].source, alone)


def test_drawn_batches_say_the_same_and_keep_to_the_budget(
    corpus: EncodedCorpus, tokenizer: Tokenizer, pairs: list[tuple[str, str]]
) -> None:
    drawn = sampled(corpus, tokenizer)
    plan = BatchPlan(*drawn.lengths(), batch_tokens=128, seed=1)
    longer = 0
    row = PlannedBatches(plan)
    for key in (row[number] for number in range(len(plan))):
        batch = drawn[key]
        assert batch.size * max(batch.source.shape[1], batch.target_output.shape[1]) <= 128
        texts = tokenizer.decode_target(batch.source.tolist())
        assert texts == [pairs[index][0] for index in key.pairs]
        longer += batch.source_tokens - batch.size - corpus.lengths("source")[key.pairs].sum()
    assert longer > 40  # pieces more than the best segmentations have


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
            letters = {one.strip("\u2581") for one in pair} - {""}
            assert len(letters) <= 1
        # Every piece of a text is part of a linked word, the ends and the padding are not.
        for side, axis in ((batch.source, 0), (batch.target_output, 1)):
            assert torch.equal(batch.alignment[row].any(axis), side[row] > 3)


def test_a_file_of_links_that_goes_on_too_long_is_refused(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "links").write_text("0-0\n0-0\n")
    with pytest.raises(InputError, match="2 lines of links for 1 sentence pairs"):
        encode_corpus(
            *("train", lambda: [("a", "a")], tokenizer, None, tmp_path / "train"),
            links=lambda: read_links(tmp_path / "links", [("a", "a")]),
            **ALONE,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["links"]
