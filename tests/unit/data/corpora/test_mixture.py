"""Several corpora: what each inherits, its share, its tags, and what they have in common."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import data_config, tokenizer_config, translation_data, write_corpus
from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.data.corpora import split as split_module
from transformer.data.corpora.evaluation_text import Texts, read_texts
from transformer.data.corpora.resolve import (
    AnySplit,
    BalancedText,
    JoinedSplit,
    config_tags,
    corpus_configs,
    find_splits,
    sampling_weights,
)
from transformer.data.corpora.split import Split
from transformer.data.datamodules.translation import TranslationData
from transformer.data.text import lines
from transformer.data.tokenization.tags import SourceTags, parse_tags
from transformer.settings.data import CorpusConfig, DataConfig


def corpora(folder: Path, **entries: Mapping[str, Any]) -> DataConfig:
    """``big`` has 60 pairs, ``small`` 21: 81 pairs of `write_corpus` in two files."""
    text = write_corpus(folder).read_text().splitlines(keepends=True)
    for name, part in (("big", text[:60]), ("small", text[60:])):
        (folder / f"{name}.tsv").write_text("".join(part))
    given = {
        name: CorpusConfig(**{"train": str(folder / f"{name}.tsv"), **entry})
        for name, entry in (entries or {"big": {}, "small": {}}).items()
    }
    return data_config(folder, corpora=given, train=None, validation_size=3)


def test_what_a_corpus_does_not_say_is_said_for_all(tmp_path: Path) -> None:
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
    every = {name: replace(one, tag="web") for name, one in (config.corpora or {}).items()}
    assert not config_tags(replace(config, corpora=every)).optional


@pytest.mark.parametrize(
    ("temperature", "weights", "share"),
    [
        *[(None, {}, 0.9), (1.0, {}, 0.9), (2.0, {}, 0.75), (1e9, {}, 0.5)],
        (2.0, {"big": {"weight": 1.0}, "small": {"weight": 3.0}}, 0.25),
    ],
)
def test_a_temperature_favors_the_small(
    tmp_path: Path, temperature: float | None, weights: dict[str, Any], share: float
) -> None:
    """The share is as the size to the power of 1/T: 90 to 10 becomes 3 to 1 at T = 2."""
    config = replace(corpora(tmp_path, **weights), temperature=temperature)
    found = sampling_weights(config, [90, 10])
    assert found == pytest.approx({"big": share, "small": 1 - share})


def test_the_vocabulary_is_learned_from_the_shares(tmp_path: Path) -> None:
    def read(config: DataConfig, *, all_of_it: bool) -> Counter[str]:
        train = find_splits(config)["train"]
        assert isinstance(train, JoinedSplit)
        own = {pair: name for name, part in train.parts.items() for pair in part}
        times = Counter(BalancedText(config, train.parts))
        assert set(times) <= set(own)
        assert (set(times) == set(own)) == all_of_it
        return Counter({n: sum(c for p, c in times.items() if own[p] == n) for n in train.parts})

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
    assert [(source, one) for source, (one,) in zip(*texts[:2], strict=True)] == expected
    assert list(map(parse_tags, texts.sources)) == [parse_tags(source) for source, _ in expected]
    assert texts.ranges == {"big": range(3), "small": range(4, 7)}


def module(config: DataConfig, **changes: Any) -> TranslationData:
    return translation_data(config, tokenizer_config(), **changes)


def test_a_later_corpus_leaves_the_others_encoded(tmp_path: Path) -> None:
    config = corpora(tmp_path, big={"tag": "a"})
    one = module(config)
    one.prepare_data()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/*.arrow")}
    assert len(before) == 2
    both = corpora(tmp_path, big={"tag": "a"}, small={"tag": "b"})
    # Of the same subwords: those that the first run learned.
    known = one.tokenizer.with_tags(config_tags(both))
    module(both, initial_tokenizer=known).prepare_data()
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/*.arrow")}
    assert len(after) == 4 and before.items() <= after.items()
    # A resumed run adds no tags.
    with pytest.raises(InputError, match=r"the tags <tag a>; .* add tags .here <tag a>, <tag b>"):
        _ = module(both, initial_tokenizer=one.tokenizer).tokenizer


def test_what_is_said_for_all_is_for_those_who_read_it(tmp_path: Path) -> None:
    entries = {
        "books": CorpusConfig(train="b.jsonl", documents=3),
        "web": CorpusConfig(train="w.jsonl"),
        "plain": CorpusConfig(train=["a", "b"], documents=2),
    }
    config = data_config(tmp_path, corpora=entries, document_key="id")
    keys = {name: one.document_key for name, one in corpus_configs(config).items()}
    assert keys == {"books": "id", "web": None, "plain": None}
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("fr", "de"):
            (tmp_path / f"{name}.{language}").write_text(f"{name} {language}\n")
    captions = {"corpus": "multi30k", "source": "fr", "target": "de"}
    config = corpora(tmp_path, big={}, captions={"train": None, **captions})
    found = find_splits(replace(config, root=str(tmp_path)))
    assert list(found["train_captions"]) == [("train fr", "train de")]
    assert len(list(found["train_big"])) == 57


@pytest.mark.parametrize(
    ("changes", "entry", "says"),
    [
        ({}, {"tag": "two words"}, "data.corpora.big.tag='two words' cannot be a name or tag"),
        ({"target_tag": True}, {"target": "two words"}, "big.target='two words' cannot be a name"),
        ({"corpora": None, "document_key": "id"}, {}, "data.document_key needs data.documents=N"),
        ({"streaming": True}, {}, "reads files of one corpus of single sentences"),
        ({"corpora": {"a": CorpusConfig(weight=1.0), "b": CorpusConfig()}}, {}, "b.weight is miss"),
    ],
)
def test_what_contradicts_itself_or_does_nothing_is_refused(
    tmp_path: Path, changes: dict[str, Any], entry: dict[str, Any], says: str
) -> None:
    config = data_config(tmp_path, corpora={"big": CorpusConfig()})
    fields = {"corpora": {"big": CorpusConfig(**entry)}} | changes
    with pytest.raises(InputError, match=says):
        replace(config, **fields)


def test_a_number_of_a_corpus_is_named_by_its_keys() -> None:
    with pytest.raises(InputError, match=r"^data\.corpora\.weight=0\.0 must be above 0"):
        CorpusConfig(weight=0.0)
    with pytest.raises(InputError, match=r"^data\.corpora\.big\.test_size=-1 must be at least 0"):
        typed(DataConfig, {"corpora": {"big": {"test_size": -1}}}, "data")


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
