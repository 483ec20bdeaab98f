"""From the settings to the text of each split: pocket, folders, files, several corpora."""

import gzip
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import (
    data_config,
    pairs_of,
    tokenizer_config,
    translation_data,
    write_corpus,
)
from transformer.common.errors import InputError
from transformer.data.corpora.evaluation_text import read_texts
from transformer.data.corpora.resolve import (
    BalancedText,
    JoinedSplit,
    corpus_configs,
    find_splits,
    pocket_splits,
    sampling_weights,
)
from transformer.settings.data import CorpusConfig, DataConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path).parent


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"validation": "text.tsv", "test": "test.tsv"}, {"validation": 81, "test": 1}),
        ({"test": "test.tsv", "validation_size": 4, "test_size": 50}, {"validation": 4, "test": 1}),
    ],
)
def test_only_a_missing_split_is_held_out(
    folder: Path, changes: dict[str, Any], sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "test.tsv").write_text("a\tb\n")
    splits = pairs_of(folder, **changes)
    trained = 81 if "validation" in changes else 77
    assert {name: len(pairs) for name, pairs in splits.items()} == {"train": trained, **sizes}
    assert splits["test"] == [("a", "b")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"root": "here"}, r"data\.root is not read with data\.corpus=files; set data=folder"),
        ({"corpus": "wmt"}, r"data\.corpus=wmt is unknown"),
        ({"source": "y"}, "data.source and data.target are both 'y'"),
        ({"train": None}, r"set data\.train=\[SOURCE,TARGET\]"),
        ({"validation_size": 0}, r"needs a validation text; .*data\.validation_size=N"),
        ({"validation_size": 81}, r"has 81 different pairs, too few to hold out data\.validation"),
        ({"corpus": "pocket", "train": None}, "the pocket corpus is English and German"),
    ],
)
def test_settings_that_no_corpus_has_are_input_errors(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        find_splits(data_config(folder, **changes))


def folder_config(folder: Path, **changes: Any) -> DataConfig:
    fields = {"corpus": "folder", "source": "de", "target": "en", "train": None}
    return data_config(folder, **(fields | {"root": str(folder)} | changes))


def write(folder: Path, *names: str) -> Path:
    for name in names:
        text = "".join(f"{name} {number}\n" for number in range(9)).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


@pytest.mark.parametrize(("kind", "pair"), [("text", True), ("speech", False)])
def test_without_text_the_message_names_the_files_that_its_kind_has(kind: Any, pair: bool) -> None:
    config = DataConfig(corpus="files", source="x", target="y", source_kind=kind)
    with pytest.raises(InputError, match=r"needs the training text; set data\.train=") as raised:
        find_splits(config)
    assert str(raised.value).count("[SOURCE,TARGET]") == 2 * pair
    assert str(raised.value).count("=FILE.tsv") == 2 * (not pair)


def test_names_of_files_tell_their_split(tmp_path: Path) -> None:
    write(tmp_path, "train.de", "train.en.gz", "dev.de.gz", "dev.en", "test.de", "test.en")
    pairs = {split: list(text)[4] for split, text in find_splits(folder_config(tmp_path)).items()}
    assert pairs == {
        "train": ("train.de 4", "train.en.gz 4"),
        "validation": ("dev.de.gz 4", "dev.en 4"),
        "test": ("test.de 4", "test.en 4"),
    }


def test_splits_without_files_are_held_out(tmp_path: Path) -> None:
    write(tmp_path, "train.de", "train.en", "valid.de", "valid.en")
    splits = find_splits(folder_config(tmp_path, test_size=2))
    sizes = {name: len(list(split)) for name, split in splits.items()}
    assert sizes == {"train": 7, "validation": 9, "test": 2}
    with pytest.raises(InputError, match=r"data\.root=gone is no folder"):
        find_splits(folder_config(tmp_path, root="gone"))
    write(tmp_path, "val.de.gz")
    with pytest.raises(InputError, match=r"valid\.de and val\.de\.gz"):
        find_splits(folder_config(tmp_path))
    (tmp_path / "train.en").unlink()
    with pytest.raises(InputError, match=r"has no train\.en \(or \.gz\); set data\.source"):
        find_splits(folder_config(tmp_path))


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


def corpora(folder: Path, **entries: Mapping[str, Any]) -> DataConfig:
    """``big`` has 60 pairs, ``small`` 21: 81 pairs of `write_corpus` in two files."""
    text = write_corpus(folder).read_text().splitlines(keepends=True)
    for name, part in (("big", text[:60]), ("small", text[60:])):
        (folder / f"{name}.tsv").write_text("".join(part))
    entries_by_name = {
        name: CorpusConfig(**{"train": str(folder / f"{name}.tsv"), **entry})
        for name, entry in (entries or {"big": {}, "small": {}}).items()
    }
    return data_config(folder, corpora=entries_by_name, train=None, validation_size=3)


def test_a_corpus_inherits_the_keys_that_it_does_not_set(tmp_path: Path) -> None:
    config = corpora(tmp_path, big={"test_size": 2}, small={"target": "z", "validation_size": 5})
    splits = find_splits(config)
    sizes = {name: sum(1 for _ in split) for name, split in splits.items()}
    assert sizes == {
        "train": 55 + 16,
        "validation": 8,
        "train_big": 55,
        "train_small": 16,
        "validation_big": 3,
        "validation_small": 5,
        "test_big": 2,
    }
    texts = read_texts(splits["validation"])
    assert texts.ranges == {"big": range(3), "small": range(3, 8)}


def test_a_corpus_of_a_mixture_needs_training_text(tmp_path: Path) -> None:
    config = corpora(tmp_path, big={}, small={"train": None, "validation": ("a", "b")})
    with pytest.raises(InputError, match=r"^data\.corpora\.small: .*needs the training text"):
        find_splits(config)


def test_other_names_of_the_sides_do_not_reverse_files(tmp_path: Path) -> None:
    write(tmp_path, "train.de", "train.en", "valid.de", "valid.en")
    entries = {"there": CorpusConfig(), "back": CorpusConfig(source="en", target="de")}
    # The names of the files tell.
    splits = find_splits(folder_config(tmp_path, corpora=entries, test_size=0))
    there, back = (next(iter(splits[f"train_{name}"])) for name in entries)
    assert back == there[::-1]
    pair = (str(tmp_path / "train.de"), str(tmp_path / "train.en"))
    changes: dict[str, Any] = {"corpus": "files", "root": None, "validation_size": 1}
    for train in (pair, str(write_corpus(tmp_path))):
        with pytest.raises(InputError, match=r"data\.corpora\.back reads .* as en to de, and"):
            find_splits(folder_config(tmp_path, **changes, train=train, corpora=entries))
    swapped = entries | {"back": replace(entries["back"], train=pair[::-1])}
    splits = find_splits(folder_config(tmp_path, **changes, train=pair, corpora=swapped))
    assert next(iter(splits["train_back"])) == next(iter(splits["train_there"]))[::-1]
    # Both sides of sounds and their transcripts have one name.
    alike = {"source": "en", "target": "en", "source_kind": "speech", "train": train}
    entries = {"one": CorpusConfig(), "other": CorpusConfig()}
    assert "train_one" in find_splits(folder_config(tmp_path, **changes | alike, corpora=entries))


def test_a_temperature_favors_the_small(tmp_path: Path) -> None:
    """The share is as the size to the power of 1/T: 90 to 10 becomes 3 to 1 at T = 2."""
    config = corpora(tmp_path)
    assert sampling_weights(config, [90, 10]) == pytest.approx({"big": 0.9, "small": 0.1})
    warm = replace(config, temperature=2.0)
    assert sampling_weights(warm, [90, 10]) == pytest.approx({"big": 0.75, "small": 0.25})
    weighted = corpora(tmp_path, big={"weight": 1.0}, small={"weight": 3.0})
    assert sampling_weights(weighted, [90, 10]) == pytest.approx({"big": 0.25, "small": 0.75})


def test_the_vocabulary_is_learned_from_the_shares(tmp_path: Path) -> None:
    def read(config: DataConfig, *, all_of_it: bool) -> Counter[str]:
        train = find_splits(config)["train"]
        assert isinstance(train, JoinedSplit)
        corpus_of = {pair: name for name, part in train.parts.items() for pair in part}
        times = Counter(BalancedText(config, train.parts))
        assert set(times) <= set(corpus_of)
        assert (set(times) == set(corpus_of)) == all_of_it
        return Counter(
            {n: sum(c for p, c in times.items() if corpus_of[p] == n) for n in train.parts}
        )

    plain = corpora(tmp_path, big={"validation_size": 6}, small={"validation_size": 3})
    assert read(plain, all_of_it=True) == {"big": 54, "small": 18}
    sizes = {"big": 6, "small": 3}
    entries = {name: {"weight": 1.0, "validation_size": size} for name, size in sizes.items()}
    assert read(corpora(tmp_path, **entries), all_of_it=False) == {"big": 36, "small": 36}


def test_shared_keys_reach_only_corpora_that_read_them(tmp_path: Path) -> None:
    entries = {
        "books": CorpusConfig(train="b.jsonl", documents=3),
        "web": CorpusConfig(train="w.jsonl"),
        "plain": CorpusConfig(train=["a", "b"], documents=2),
    }
    config = data_config(tmp_path, corpora=entries, document_key="id")
    keys = {name: corpus.document_key for name, corpus in corpus_configs(config).items()}
    assert keys == {"books": "id", "web": None, "plain": None}


def test_each_corpus_keeps_its_own_epochs(tmp_path: Path) -> None:
    """No pair twice in an epoch of its corpus, none left out, and the shares are kept."""
    config = corpora(tmp_path, big={"weight": 1.0}, small={"weight": 3.0, "tag": "web"})
    data = translation_data(config, tokenizer_config(sampling=0.1))
    data.prepare_data()
    seen: dict[tuple[int, int], list[int]] = {}
    keys = [data.sequence[number] for number in range(1000)]
    for key in keys:
        seen.setdefault((key.corpus, key.epoch), []).extend(key.pairs.tolist())
    complete = {index: pairs for index, pairs in seen.items() if (index[0], index[1] + 1) in seen}
    assert {corpus for corpus, _ in complete} == {0, 1}
    for (corpus, _), pairs in complete.items():
        assert sorted(pairs) == list(range((57, 18)[corpus]))
    assert sum(key.corpus for key in keys) / len(keys) == pytest.approx(0.75, abs=0.002)
    # Every source of the second corpus has its tag, no other has.
    tag = data.tokenizer.source_vocab_size - 1
    for key in keys[:40]:
        first = data._training[key].source[:, 0]
        assert bool((first == tag).all()) is bool(key.corpus == 1)
