"""A folder is read by the names of its files."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import data_config
from transformer.common.errors import InputError
from transformer.data.config import DataConfig
from transformer.data.corpora.resolve import find_splits
from transformer.data.quality.base import given_texts


def settings(folder: Path, **changes: Any) -> DataConfig:
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
    found = {split: list(text)[4] for split, text in find_splits(settings(tmp_path)).items()}
    assert found == {
        "train": ("train.de 4", "train.en.gz 4"),
        "validation": (f"{name}.de.gz 4", f"{name}.en 4"),
        "test": ("test.de 4", "test.en 4"),
    }


def test_what_is_not_there_is_held_out(tmp_path: Path) -> None:
    write(tmp_path, "train.de", "train.en", "valid.de", "valid.en")
    found = find_splits(settings(tmp_path, test_size=2))
    sizes = {name: len(list(split)) for name, split in found.items()}
    assert sizes == {"train": 7, "validation": 9, "test": 2}
    whole = given_texts(settings(tmp_path))
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
def test_what_cannot_be_is_an_input_error(
    tmp_path: Path, names: list[str], changes: dict[str, Any], message: str
) -> None:
    write(tmp_path, *names)
    with pytest.raises(InputError, match=message):
        find_splits(settings(tmp_path, **changes))
