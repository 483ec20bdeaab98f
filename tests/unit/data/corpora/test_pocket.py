"""The text, the tags and the word links of the pocket corpus."""

from pathlib import Path

import pytest

from tests.helpers.data.corpora import data_config, data_run, pairs_of, tokenizer_config
from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import pocket_splits, pocket_text
from transformer.data.datamodules.tagging import TaggedDataset, TaggingData, read_pocket_tags

SIZES = {"train": 40_000, "validation": 500, "test": 1_000, "test_novel": 500}
ENGLISH = {"corpus": "pocket", "source": "en", "target": "de", "train": None}
GERMAN = {"corpus": "pocket", "source": "de", "target": "en", "train": None}


def test_both_directions_have_the_same_pairs_and_links(tmp_path: Path) -> None:
    english, german = pairs_of(tmp_path, **ENGLISH), pairs_of(tmp_path, **GERMAN)
    assert {name: len(pairs) for name, pairs in english.items()} == SIZES
    for name, pairs in english.items():
        assert german[name] == [(target, source) for source, target in pairs]
    links, swapped = (
        [pair.sure for pair in pocket_splits(*sides)["test"].word_links()]
        for sides in (("en", "de"), ("de", "en"))
    )
    assert all(links)
    assert swapped == [{(target, source) for source, target in row} for row in links]


def test_words_have_tags_and_sources_one_target(tmp_path: Path) -> None:
    sources = [source for pairs in pairs_of(tmp_path, **ENGLISH).values() for source, _ in pairs]
    assert len(set(sources)) == len(sources)
    data = TaggingData(data_run(data_config(tmp_path, **GERMAN), tokenizer_config()))
    assert data.splits == ("validation", "test", "test_novel")
    texts = [target for _, target in pocket_splits("en", "de")["validation"]]
    for text, (words, tags) in zip(texts, data.sentences("validation"), strict=True):
        assert "".join(words) == text.replace(" ", "")
        for word, tag in zip(words, tags, strict=True):
            assert (tag == "PUNCT") == (not word.isalnum())


def test_every_word_of_test_novel_is_trained_on() -> None:
    for language in ("en", "de"):
        train, novel = (
            {word for words, _ in read_pocket_tags(pocket_text(language)[split]) for word in words}
            for split in ("train", "test_novel")
        )
        assert novel <= train


@pytest.mark.thorough
def test_a_sentence_without_positions_is_named_by_its_line(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tagged = list(read_pocket_tags(pocket_text("de")["validation"]))
    lengths = TaggedDataset(tagged, tokenizer).lengths()[0]
    position = next(index for index, length in enumerate(lengths) if length > lengths[0])
    room = int(lengths[:position].max()) + 1
    config = data_run(data_config(tmp_path, **GERMAN), tokenizer_config(), positions=room)
    data = TaggingData(config, tokenizer)
    with pytest.raises(InputError, match=rf"validation\.de\.gz:{position + 1}: a sentence of"):
        data.prepare_data()
