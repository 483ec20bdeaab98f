"""From what a user configures to the text of each split."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.data.corpora import data_config, write_corpus
from transformer.data import splits as splits_module
from transformer.data.conllu import read_conllu
from transformer.data.corpus import Corpus
from transformer.data.grammar import Grammar
from transformer.data.splits import find_splits, pocket_folder
from transformer.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path).parent


def pairs_of(folder: Path, **changes: Any) -> dict[str, list[tuple[str, str]]]:
    found = find_splits(data_config(folder, **changes))
    return {name: list(split) for name, split in found.items()}


def test_held_out_pairs_leave_the_training_text_in_order(folder: Path) -> None:
    whole = pairs_of(folder, validation=str(folder / "text.tsv"))["train"]
    held = pairs_of(folder, validation_size=9, test_size=5)
    assert [len(held[name]) for name in ("train", "validation", "test")] == [67, 9, 5]
    assert sorted(pair for pairs in held.values() for pair in pairs) == sorted(whole)
    for pairs in held.values():
        assert pairs == [pair for pair in whole if pair in pairs]


def test_neither_seed_nor_direction_nor_order_decides_what_is_held_out(folder: Path) -> None:
    names = ("validation", "test")
    held = pairs_of(folder, test_size=5)
    assert pairs_of(folder, test_size=5, seed=99) == held
    lines = (folder / "text.tsv").read_text().splitlines()
    pairs = [line.split("\t") for line in reversed(lines)]
    for side, language in enumerate("yx"):
        text = "".join(f"{pair[1 - side]}\n" for pair in pairs)
        (folder / f"text.{language}").write_text(text)
    train = [str(folder / "text.y"), str(folder / "text.x")]
    swapped = pairs_of(folder, test_size=5, train=train, source="y", target="x")
    for name in names:
        assert [(y, x) for x, y in reversed(held[name])] == swapped[name]


def test_what_was_trained_on_is_never_held_out_of_a_text_that_grew(folder: Path) -> None:
    before = pairs_of(folder, validation_size=9, test_size=5)
    more = "".join(f"x{number}\ty{number}\n" for number in range(200))
    with (folder / "text.tsv").open("a") as file:
        file.write(more)
    now = pairs_of(folder, validation_size=9, test_size=5)
    moved = [pair for pair in (*before["validation"], *before["test"]) if pair in now["train"]]
    assert moved
    assert set(before["train"]) <= set(now["train"])
    # What no longer validates may test, but not the other way either.
    assert not set(before["test"]) & set(now["validation"])


def test_pairs_that_equal_a_held_out_one_are_not_trained_on(folder: Path) -> None:
    before = pairs_of(folder, validation_size=9, test_size=5)
    held = [*before["validation"], *before["test"]]
    trained = before["train"][0]
    again = [*held, *((target, source) for source, target in held), trained]
    with (folder / "text.tsv").open("a") as file:
        file.write("".join(f"{source}\t{target}\n" for source, target in again))
    after = pairs_of(folder, validation_size=9, test_size=5)
    assert after == before | {"train": [*before["train"], trained]}


def test_what_is_held_out_of_a_large_text_is_found_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer.data.held_out.is_large", lambda path: True)
    before = pairs_of(folder, test_size=5)

    def fail(*arguments: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("transformer.data.held_out._smallest", fail)
    assert pairs_of(folder, test_size=5) == before
    for changes in ({"test_size": 4}, {"validation_size": 4, "test_size": 5}):
        with pytest.raises(AssertionError, match="read again"):
            pairs_of(folder, **changes)


def test_what_an_older_version_held_out_cannot_be_found(folder: Path) -> None:
    with pytest.raises(InputError, match=r"any more; score it with source=FILE reference=FILE"):
        pairs_of(folder, held_out_by="seed")
    # Nothing is held out of a text that has others beside it.
    text = str(folder / "text.tsv")
    assert pairs_of(folder, held_out_by="seed", validation=text, test=text)


def test_given_files_are_used_whole(folder: Path) -> None:
    (folder / "test.tsv").write_text("a\tb\n")
    found = pairs_of(folder, validation=str(folder / "text.tsv"), test=str(folder / "test.tsv"))
    assert (len(found["train"]), len(found["validation"]), found["test"]) == (81, 81, [("a", "b")])


def test_only_the_missing_split_is_held_out(folder: Path) -> None:
    (folder / "test.tsv").write_text("a\tb\n")
    found = pairs_of(folder, test=str(folder / "test.tsv"), validation_size=4, test_size=50)
    assert [len(found[name]) for name in ("train", "validation", "test")] == [77, 4, 1]


def test_a_size_of_zero_goes_without_a_test_split(folder: Path) -> None:
    assert set(pairs_of(folder, test_size=0)) == {"train", "validation"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"corpus": "pocket", "source": "en", "target": "de"},
            r"data\.train is not read with data\.corpus=pocket; set data=files, or leave data\.tr",
        ),
        ({"root": "here"}, r"data\.root is not read with data\.corpus=files; set data=folder"),
        (
            {"corpus": "multi30k", "train": None, "test": "a.tsv"},
            r"data\.test is not read with data\.corpus=multi30k",
        ),
        ({"train": "~nosuchuser/a.tsv"}, r"~nosuchuser/a\.tsv: there is no such home folder; wr"),
        (
            {"corpus": "wmt"},
            r"data\.corpus=wmt is unknown; set pocket, multi30k, multi30k_tok, tan",
        ),
        ({"source": "y"}, "data.source and data.target are both 'y'"),
        ({"train": None}, r"set data\.train=\[SOURCE,TARGET\]"),
        ({"validation_size": 0}, r"needs a validation text; .*data\.validation_size=N"),
        (
            {"validation_size": 81},
            r"has 81 different pairs, too few to hold out data\.validation_size=81;",
        ),
        ({"corpus": "pocket", "train": None}, "the pocket corpus is English and German"),
        ({"corpus": "multi30k", "train": None}, "multi30k has no language 'x'"),
        (
            {
                **{"corpus": "pocket", "train": None, "source": "en", "target": "de"},
                "alignment": "links",
            },
            r"pocket corpus has links of its own; leave data\.alignment out",
        ),
    ],
)
def test_what_cannot_be_is_an_input_error(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        find_splits(data_config(folder, **changes))


def test_held_out_pairs_take_their_links_along(folder: Path) -> None:
    pairs = list(Corpus.of(folder / "text.tsv", "x", "y"))
    # A link that tells the line: the last word of either side.
    lines = [f"{source.count(' ')}-{target.count(' ')}\n" for source, target in pairs]
    (folder / "links").write_text("".join(lines))
    found = find_splits(data_config(folder, alignment=str(folder / "links"), test_size=7))
    assert set(found) == {"train", "validation", "test"}
    for split in found.values():
        for (source, target), links in zip(split, split.word_links(), strict=True):
            assert links.sure == {(source.count(" "), target.count(" "))}
    whole = find_splits(
        data_config(
            folder,
            alignment=str(folder / "links"),
            validation=str(folder / "text.tsv"),
            test_size=0,
        )
    )
    assert len(list(whole["train"].word_links())) == 81
    with pytest.raises(
        InputError, match=r"word alignment of .*text\.tsv is not known; set data\.al"
    ):
        whole["validation"].word_links()


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


def test_multi30k_from_a_folder(tmp_path: Path) -> None:
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("fr", "de"):
            (tmp_path / f"{name}.{language}").write_text(f"{name} {language}\n")
    found = pairs_of(
        tmp_path, corpus="multi30k", source="fr", target="de", root=str(tmp_path), train=None
    )
    assert found == {
        "train": [("train fr", "train de")],
        "validation": [("val fr", "val de")],
        "test": [("test_2016_flickr fr", "test_2016_flickr de")],
    }


def test_pocket_is_made_once_and_anew_when_the_grammar_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    small = {"train": 20, "validation": 2, "test": 3, "test_novel": 1}

    def generate(grammar: Grammar, seed: int) -> dict[str, list[Any]]:
        made.append(seed)
        pairs = (derivation.pair for derivation in grammar.derivations(seed))
        return {split: [next(pairs) for _ in range(size)] for split, size in small.items()}

    monkeypatch.setattr("transformer.data.grammar.generate_splits", generate)
    grammar = tmp_path / "pocket"
    grammar.mkdir()
    for path in splits_module._pocket_grammar().glob("*.yaml"):
        (grammar / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(splits_module, "_pocket_grammar", lambda: grammar)

    def found(source: str, target: str) -> dict[str, list[tuple[str, str]]]:
        return pairs_of(tmp_path, corpus="pocket", source=source, target=target, train=None)

    english = found("en", "de")
    assert {name: len(pairs) for name, pairs in english.items()} == small
    german = found("de", "en")
    assert german["test"] == [(target, source) for source, target in english["test"]]
    links, swapped = (
        [
            linked.sure
            for linked in find_splits(
                data_config(tmp_path, corpus="pocket", source=source, target=target, train=None)
            )["test"].word_links()
        ]
        for source, target in (("en", "de"), ("de", "en"))
    )
    assert all(links)
    assert swapped == [{(german, english) for english, german in those} for those in links]
    for language, text in (("en", english), ("de", german)):
        for split, size in small.items():
            path = pocket_folder(tmp_path / "cache") / f"{split}.{language}.conllu"
            tagged = list(read_conllu(path))
            assert len(tagged) == size
            written = [" ".join(sentence.words).replace(" ", "") for sentence in tagged]
            assert written == [source.replace(" ", "") for source, _ in text[split]]
    assert len(made) == 1
    with (grammar / "rules.yaml").open("a") as file:
        file.write("# changed\n")
    found("en", "de")
    assert len(made) == 2
