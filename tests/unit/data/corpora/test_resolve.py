"""From what a user configures to the text of each split."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import data_config, pairs_of, write_corpus
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import find_splits


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
