"""From what a user configures to the text of each split."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import data_config, pairs_of, tokenizer_config, write_corpus
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import find_splits
from transformer.quality.examination import given_texts
from transformer.settings.data import DataConfig


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
    found = pairs_of(folder, **changes)
    left = 81 if "validation" in changes else 81 - sizes["validation"]
    assert {name: len(pairs) for name, pairs in found.items()} == {"train": left, **sizes}
    assert found.get("test", [("a", "b")]) == [("a", "b")]


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
def test_what_cannot_be_is_an_input_error(
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
    own = {"corpus": "folder", "source": "de", "target": "en", "train": None, "root": str(folder)}
    return data_config(folder, **(own | changes))


def write(folder: Path, *names: str) -> Path:
    for name in names:
        text = "".join(f"{name} {number}\n" for number in range(9)).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
def test_names_say_what_a_file_is(tmp_path: Path, name: str) -> None:
    write(tmp_path, "train.de", "train.en.gz", f"{name}.de.gz", f"{name}.en", "test.de", "test.en")
    found = {split: list(text)[4] for split, text in find_splits(folder_config(tmp_path)).items()}
    assert found == {
        "train": ("train.de 4", "train.en.gz 4"),
        "validation": (f"{name}.de.gz 4", f"{name}.en 4"),
        "test": ("test.de 4", "test.en 4"),
    }


def test_what_is_not_there_is_held_out(tmp_path: Path) -> None:
    write(tmp_path, "train.de", "train.en", "valid.de", "valid.en")
    found = find_splits(folder_config(tmp_path, test_size=2))
    sizes = {name: len(list(split)) for name, split in found.items()}
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


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("workers", -1, r"data\.workers=-1 must be at least 0"),
        ("max_ratio", 0.5, r"data\.max_ratio=0\.5 must be at least 1"),
        ("max_left_out", 1.5, r"data\.max_left_out=1\.5 must be from 0 to 1"),
        ("buffer", 0, r"data\.buffer=0 must be at least 1"),
        ("corpora", {}, r"data\.corpora={} names none"),
        ("vocab_size", 4, r"tokenizer\.vocab_size=4 must be at least 5"),
        ("character_coverage", 0.5, r"character_coverage=0\.5 must be from 0\.98 to 1"),
        ("sampling", 2.0, r"tokenizer\.sampling=2\.0 must be from 0 to 1"),
    ],
)
def test_a_number_out_of_range_is_named(tmp_path: Path, key: str, value: object, says: str) -> None:
    tokenizer = key in vars(tokenizer_config())
    with pytest.raises(InputError, match=says):
        _ = tokenizer_config(**{key: value}) if tokenizer else data_config(tmp_path, **{key: value})
