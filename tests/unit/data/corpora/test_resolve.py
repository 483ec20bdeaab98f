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
    data_run,
    pairs_of,
    tokenizer_config,
    translation_data,
    write_corpus,
)
from transformer.common.errors import InputError
from transformer.data.corpora import split as split_module
from transformer.data.corpora.evaluation_text import Texts, read_texts
from transformer.data.corpora.resolve import (
    AnySplit,
    BalancedText,
    JoinedSplit,
    config_tags,
    corpus_configs,
    find_splits,
    pocket_splits,
    sampling_weights,
)
from transformer.data.corpora.split import Split
from transformer.data.datamodules.tagging import TaggingData
from transformer.data.datamodules.translation import TranslationData
from transformer.data.text import lines
from transformer.data.tokenization.tags import SourceTags, parse_tags
from transformer.quality.examination import given_texts
from transformer.settings.data import CorpusConfig, DataConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path).parent


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"validation": "text.tsv", "test": "test.tsv"}, {"validation": 81, "test": 1}),
        ({"test": "test.tsv", "validation_size": 4, "test_size": 50}, {"validation": 4, "test": 1}),
        ({"test_size": 0}, {"validation": 9}),
    ],
)
def test_only_a_missing_split_is_held_out(
    folder: Path, changes: dict[str, Any], sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "test.tsv").write_text("a\tb\n")
    splits = pairs_of(folder, **changes)
    trained = 81 if "validation" in changes else 81 - sizes["validation"]
    assert {name: len(pairs) for name, pairs in splits.items()} == {"train": trained, **sizes}
    assert splits.get("test", [("a", "b")]) == [("a", "b")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"corpus": "pocket", "source": "en", "target": "de"},
            r"data\.train is not read with data\.corpus=pocket; set data=files, or leave data\.tr",
        ),
        ({"root": "here"}, r"data\.root is not read with data\.corpus=files; set data=folder"),
        ({"train": "~nosuchuser/a.tsv"}, r"~nosuchuser/a\.tsv: no such file; there is no folder"),
        ({"corpus": "wmt"}, r"data\.corpus=wmt is unknown; set pocket, multi30k, multi30k_tok, t"),
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


def test_other_links_have_another_fingerprint(folder: Path) -> None:
    def fingerprints(text: str) -> tuple[str, str]:
        (folder / "links").write_text(text)
        split = find_splits(data_config(folder, alignment=str(folder / "links")))["train"]
        return split.fingerprint(), split.links_fingerprint()

    (first, links), (second, others) = fingerprints("0-0\n"), fingerprints("0-1\n")
    assert first == second
    assert links != others
    # Lines count, not only what stands in them.
    assert len({fingerprints(text)[1] for text in ("0-0\n1-1\n", "0-01-1\n", "0-0\n\n1-1\n")}) == 3


def folder_config(folder: Path, **changes: Any) -> DataConfig:
    fields = {
        "corpus": "folder",
        "source": "de",
        "target": "en",
        "train": None,
        "root": str(folder),
    }
    return data_config(folder, **(fields | changes))


def write(folder: Path, *names: str) -> Path:
    for name in names:
        text = "".join(f"{name} {number}\n" for number in range(9)).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
def test_names_of_files_tell_their_split(tmp_path: Path, name: str) -> None:
    write(tmp_path, "train.de", "train.en.gz", f"{name}.de.gz", f"{name}.en", "test.de", "test.en")
    pairs = {split: list(text)[4] for split, text in find_splits(folder_config(tmp_path)).items()}
    assert pairs == {
        "train": ("train.de 4", "train.en.gz 4"),
        "validation": (f"{name}.de.gz 4", f"{name}.en 4"),
        "test": ("test.de 4", "test.en 4"),
    }


def test_splits_without_files_are_held_out(tmp_path: Path) -> None:
    write(tmp_path, "train.de", "train.en", "valid.de", "valid.en")
    splits = find_splits(folder_config(tmp_path, test_size=2))
    sizes = {name: len(list(split)) for name, split in splits.items()}
    assert sizes == {"train": 7, "validation": 9, "test": 2}
    whole = given_texts(folder_config(tmp_path))
    assert {name: len(list(text)) for name, text in whole.items()} == {"train": 9, "validation": 9}


@pytest.mark.parametrize(
    ("names", "changes", "message"),
    [
        ([], {"root": None}, r"data\.root=null is no folder .*; data=folder needs one"),
        ([], {"root": "gone"}, r"data\.root=gone is no folder \(seen from "),
        ([], {}, r"has nothing for train; it needs one train\.de and one train\.en \(or \.gz\)"),
        (["train.de"], {}, r"has train\.de for train; it needs one"),
        (["train.de", "train.en", "dev.en"], {}, r"has dev\.en for validation"),
        (["train.de", "train.en", "val.de", "valid.de.gz", "val.en"], {}, r"has valid\.de\.gz and"),
        (["train.de"], {"validation": ["a", "b"]}, r"data\.validation is not read with data\.cor"),
    ],
)
def test_a_folder_that_cannot_be_read_is_an_input_error(
    tmp_path: Path, names: list[str], changes: dict[str, Any], message: str
) -> None:
    write(tmp_path, *names)
    with pytest.raises(InputError, match=message):
        find_splits(folder_config(tmp_path, **changes))


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


def test_each_source_has_the_tags_of_its_corpus(tmp_path: Path) -> None:
    config = corpora(tmp_path, big={}, small={"target": "z", "tag": "web"})
    config = replace(config, target_tag=True)
    tags = [parse_tags(source) for source, _ in find_splits(config)["validation"]]
    assert tags == [SourceTags("y")] * 3 + [SourceTags("z", "web")] * 3
    known = config_tags(config)
    assert (known.targets, known.corpora, known.optional) == (("y", "z"), ("web",), True)
    # Without tags, a target is any key of JSONL.
    spaced = corpora(tmp_path, big={"target": "German text"})
    assert corpus_configs(spaced)["big"].target == "German text"
    assert config_tags(spaced).targets == ()
    every = {name: replace(corpus, tag="web") for name, corpus in (config.corpora or {}).items()}
    assert not config_tags(replace(config, corpora=every)).optional


@pytest.mark.parametrize(
    ("temperature", "weights", "share"),
    [
        (None, {}, 0.9),
        (2.0, {}, 0.75),
        (1e9, {}, 0.5),
        (2.0, {"big": {"weight": 1.0}, "small": {"weight": 3.0}}, 0.25),
    ],
)
def test_a_temperature_favors_the_small(
    tmp_path: Path, temperature: float | None, weights: dict[str, Any], share: float
) -> None:
    """The share is as the size to the power of 1/T: 90 to 10 becomes 3 to 1 at T = 2."""
    config = replace(corpora(tmp_path, **weights), temperature=temperature)
    weights_by_name = sampling_weights(config, [90, 10])
    assert weights_by_name == pytest.approx({"big": share, "small": 1 - share})


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


def test_large_corpora_are_counted_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_LARGE", 8)
    monkeypatch.setattr(split_module, "_REMEMBERED", 8)
    monkeypatch.setattr(lines, "_SETTLED_SECONDS", 0.0)
    config = corpora(tmp_path, big={}, small={"tag": "web"})
    cache = Path(config.cache)

    def found() -> tuple[str, Texts]:
        splits = find_splits(config)
        train = splits["train"]
        assert isinstance(train, JoinedSplit)
        text = BalancedText(config, train.parts).fingerprint(cache)
        return text, read_texts(of_documents(splits["validation"]), cache)

    def of_documents(split: AnySplit) -> JoinedSplit:
        assert isinstance(split, JoinedSplit)
        return JoinedSplit({n: replace(part, sentences=2) for n, part in split.parts.items()})

    parts = find_splits(config)
    before, expected = found(), list(of_documents(parts["validation"]))
    for name in ("train_big", "train_small", "validation_big", "validation_small"):
        part = parts[name]
        assert isinstance(part, Split) and part.count(cache) == len(list(part))
    monkeypatch.setattr("transformer.data.text.parallel.tsv_pairs", None)
    text, texts = found()
    assert (text, texts) == before
    assert [(source, target) for source, (target,) in zip(*texts[:2], strict=True)] == expected
    assert list(map(parse_tags, texts.sources)) == [parse_tags(source) for source, _ in expected]
    assert texts.ranges == {"big": range(3), "small": range(4, 7)}


def module(config: DataConfig, **changes: Any) -> TranslationData:
    return translation_data(config, tokenizer_config(), **changes)


def test_a_later_corpus_leaves_the_others_encoded(tmp_path: Path) -> None:
    config = corpora(tmp_path, big={"tag": "a"})
    first = module(config)
    first.prepare_data()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/*.arrow")}
    assert len(before) == 2
    both = corpora(tmp_path, big={"tag": "a"}, small={"tag": "b"})
    # Of the same subwords: those that the first run learned.
    known = first.tokenizer.with_tags(config_tags(both))
    module(both, initial_tokenizer=known).prepare_data()
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/*.arrow")}
    assert len(after) == 4 and before.items() <= after.items()
    # A resumed run adds no tags.
    with pytest.raises(InputError, match=r"the tags <tag a>; .* add tags .here <tag a>, <tag b>"):
        _ = module(both, initial_tokenizer=first.tokenizer).tokenizer


def test_shared_keys_reach_only_corpora_that_read_them(tmp_path: Path) -> None:
    entries = {
        "books": CorpusConfig(train="b.jsonl", documents=3),
        "web": CorpusConfig(train="w.jsonl"),
        "plain": CorpusConfig(train=["a", "b"], documents=2),
    }
    config = data_config(tmp_path, corpora=entries, document_key="id")
    keys = {name: corpus.document_key for name, corpus in corpus_configs(config).items()}
    assert keys == {"books": "id", "web": None, "plain": None}
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("fr", "de"):
            (tmp_path / f"{name}.{language}").write_text(f"{name} {language}\n")
    captions = {"corpus": "multi30k", "source": "fr", "target": "de"}
    config = corpora(tmp_path, big={}, captions={"train": None, **captions})
    splits = find_splits(replace(config, root=str(tmp_path)))
    assert list(splits["train_captions"]) == [("train fr", "train de")]
    assert len(list(splits["train_big"])) == 57


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"train": "smal.tsv"}, r"small: .*smal\.tsv: no such file \(did"),
        ({"corpus": "pocket"}, r"small: data\.train is not read with data"),
    ],
)
def test_an_error_names_the_corpus(
    tmp_path: Path, entry: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"^data\.corpora\.{says}"):
        find_splits(corpora(tmp_path, big={}, small=entry))
    (tmp_path / "none.tsv").write_text("")
    entries = {"none": {"train": str(tmp_path / "none.tsv")}}
    config = replace(corpora(tmp_path, **entries), validation=str(tmp_path / "big.tsv"))
    with pytest.raises(InputError, match=r"none\.tsv: no line has text to learn a vocabulary"):
        _ = module(config).tokenizer


@pytest.mark.parametrize("sampling", [0.0, 0.1])
def test_each_corpus_keeps_its_own_epochs(tmp_path: Path, sampling: float) -> None:
    """No pair twice in an epoch of its corpus, none left out, and the shares are kept."""
    config = corpora(tmp_path, big={"weight": 1.0}, small={"weight": 3.0, "tag": "web"})
    data = translation_data(config, tokenizer_config(sampling=sampling))
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
