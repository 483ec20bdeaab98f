"""A stream gives every pair once an epoch, and says what it cannot do."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import tokenizer_config, translation_data
from tests.helpers.data.streams import PAIRS, epoch_of, state_at, stream, texts, write, write_shards
from transformer.common.errors import InputError
from transformer.data.streaming.shards import Shard
from transformer.data.tokenization.tags import Tags
from transformer.settings.data import AugmentationConfig
from transformer.settings.tokenizer import PAD


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shards(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ["part-*.tsv"],
        ["part-*.tsv.gz"],
        ["part-0.jsonl", "part-1.tsv", "part-2.parquet"],
        ["part-*.parquet"],
        ["part-*.x", "part-*.y"],
    ],
)
def test_every_pair_comes_once_an_epoch(folder: Path, names: list[str]) -> None:
    module = stream(folder, [str(folder / name) for name in names])
    module.prepare_data()
    for epoch in (0, 1):
        numbers = epoch_of(module, epoch)
        assert sorted(texts(module, numbers)) == sorted(target for _, target in PAIRS)
    assert texts(module, epoch_of(module, 0)) != texts(module, epoch_of(module, 1))
    batches = [module._training[module.sequence[number]] for number in epoch_of(module, 1)]
    assert all(b.size * max(b.source.shape[1], b.target_output.shape[1]) <= 96 for b in batches)


def test_drawn_segmentations_say_the_same_and_differ_by_epoch(folder: Path) -> None:
    module = stream(folder, sampling=0.4, buffer=100)
    first, second = epoch_of(module, 0), epoch_of(module, 1)
    assert sorted(texts(module, first)) == sorted(texts(module, second))
    drawn: list[dict[int, list[int]]] = []
    for numbers in (first, second):
        keys = [module.sequence[number] for number in numbers]
        batches = [module._training[key] for key in keys]
        drawn.append(
            {
                pair: [subword for subword in row if subword != PAD]
                for key, batch in zip(keys, batches, strict=True)
                for pair, row in zip(key.pairs.tolist(), batch.source.tolist(), strict=True)
            }
        )
    assert drawn[0].keys() == drawn[1].keys()
    assert sum(drawn[0][pair] != drawn[1][pair] for pair in drawn[0]) > 20


def test_disturbed_pairs_differ_by_epoch_and_stay_those_of_their_seed(folder: Path) -> None:
    """A resumed stream goes on with them; a blank text stays blank, and a joined pair has two."""
    write(folder / "part-3.tsv", [("", "")])
    settings = AugmentationConfig(emoji=0.3, joined=0.3)
    made = [stream(folder, augmentation=settings) for _ in range(2)]
    epochs = [texts(made[0], epoch_of(made[0], epoch)) for epoch in (0, 1)]
    clean = {target for _, target in PAIRS}
    changed = [[text for text in epoch if text not in clean] for epoch in epochs]
    assert all(20 < len(one) < 70 for one in changed) and set(changed[0]) != set(changed[1])
    assert [len(epoch) for epoch in epochs] == [len(PAIRS)] * 2
    numbers = epoch_of(made[0], 1)
    made[1].sequence.load_state_dict(state_at(made[0], numbers[0]))
    assert texts(made[1], numbers) == epochs[1]
    identity = made[0].sequence.identity()
    assert identity == made[1].sequence.identity() != stream(folder).sequence.identity()


def test_a_changed_pair_that_does_not_fit_stays_in_its_epoch(folder: Path) -> None:
    longest = max(len(source) for source, _ in PAIRS)
    module = stream(folder, augmentation=AugmentationConfig(joined=1.0), max_length=longest)
    found = texts(module, epoch_of(module, 0))
    clean = {target for _, target in PAIRS}
    assert len(found) == len(PAIRS) and sum(text in clean for text in found) > 0


def test_duplicates_are_left_out_within_a_buffer(folder: Path) -> None:
    write(folder / "part-3.tsv", PAIRS[:10] * 2)
    write(folder / "part-4.tsv", [("a " * 60, "b"), ("", "c"), *PAIRS[:2]])
    train = [str(folder / "part-3.tsv"), str(folder / "part-4.tsv")]
    module = stream(folder, train, buffer=1000)
    assert len(texts(module, epoch_of(module, 0))) == 10
    module = stream(folder, train, buffer=1000, deduplicate=False)
    assert len(texts(module, epoch_of(module, 0))) == 22


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"corpus": "pocket"}, "reads files of one corpus of single sentences without tags"),
        ({"alignment": "links"}, "single sentences without tags or links"),
        ({"validation": None}, "training needs a validation text"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(
    folder: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        stream(folder, **changes).prepare_data()


def test_a_stream_has_no_links_and_no_tags(folder: Path) -> None:
    plain = stream(folder)
    linked = translation_data(plain._data, tokenizer_config(), links=True)
    with pytest.raises(InputError, match=r"loss\.alignment_weight=0"):
        linked.prepare_data()
    tagged = plain.tokenizer.with_tags(Tags(sentences=3, subwords=40))
    with pytest.raises(InputError, match=r"the run has .*data\.documents=3 .* cannot change"):
        _ = translation_data(plain._data, tokenizer_config(), initial_tokenizer=tagged).tokenizer


def test_the_vocabulary_is_learned_from_the_first_pairs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = stream(folder)
    read = []
    pairs = Shard.pairs
    monkeypatch.setattr(Shard, "pairs", lambda self: (read.append(self.urls), pairs(self))[1])
    object.__setattr__(module._tokenizer_config, "max_sentences", 30)
    first = module.tokenizer.fingerprint
    assert read == [(str(folder / "part-0.tsv"),)]
    again = stream(folder)
    object.__setattr__(again._tokenizer_config, "max_sentences", 30)
    assert again.tokenizer.fingerprint == first
    assert len(read) == 1  # the second from the cache
