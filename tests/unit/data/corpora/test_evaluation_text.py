"""Several right targets of a source; and the corpora of other tasks than translation."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import data_config, pairs_of
from transformer.common.errors import InputError
from transformer.data.corpora.evaluation_text import read_texts, validation_pairs
from transformer.data.corpora.resolve import find_splits

TEXTS = [("a b", ("x y", "x")), ("c", ("z",)), ("d", ("y",)), ("a b", ("z z",))]
PAIRS = [(source, target) for source, targets in TEXTS for target in targets]


def write(folder: Path, kind: str) -> str | list[str]:
    """Write TEXTS in a format, and return what ``data.train`` names."""
    if kind == "plain":
        columns = zip(*[(source, *targets, "")[:3] for source, targets in TEXTS], strict=True)
        for name, lines in zip("sxy", columns, strict=True):
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
        return [str(folder / name) for name in "sxy"]
    path = folder / f"text.{kind}"
    if kind == "tsv":
        path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    else:
        rows = [{"x": source, "y": [*targets, ""]} for source, targets in TEXTS]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("kind", "repeated"), [("plain", False), ("tsv", False), ("tsv", True), ("jsonl", False)]
)
def test_each_target_is_trained_on_and_a_reference(
    tmp_path: Path, kind: str, repeated: bool
) -> None:
    paths = write(tmp_path, kind)
    changes: dict[str, Any] = {"train": paths, "validation": paths, "repeated_sources": repeated}
    assert pairs_of(tmp_path, **changes)["train"] == PAIRS
    config = data_config(tmp_path, **changes)
    texts = read_texts(find_splits(config)["validation"], tmp_path)
    every = [(source, (target,)) for source, target in PAIRS] if kind == "tsv" else TEXTS
    if repeated:
        every = [("a b", ("x y", "x", "z z")), ("c", ("z",)), ("d", ("y",))]
    assert list(zip(texts.sources, texts.references, strict=True)) == every
    assert validation_pairs(config, 2) == every[:2]


def test_annotators_who_agree_are_two_references(tmp_path: Path) -> None:
    for name, lines in (("s", "a\nb\n"), ("x", "k\nl\n"), ("y", "k\nm\n")):
        (tmp_path / name).write_text(lines)
    paths = [str(tmp_path / name) for name in "sxy"]
    config = data_config(tmp_path, train=paths, validation=paths)
    assert validation_pairs(config, None) == [("a", ("k", "k")), ("b", ("l", "m"))]


INFLECTION = {"corpus": "inflection", "lang": "tur", "features": ";"}


def write_published(folder: Path) -> None:
    for kind in ("train", "test"):
        lines = "".join(f"IN: jump {kind} {n} OUT: I_JUMP {n}\n" for n in range(9))
        (folder / f"tasks_{kind}_length.txt").write_text(lines)
    for kind in ("train", "dev", "test"):
        (folder / f"kor_{kind}.tsv").write_text(f"{kind}\tk u\n")
    for kind in ("trn", "dev", "tst"):
        (folder / f"tur.{kind}").write_text(f"{kind}\tV;PST\t{kind}ed\n")


@pytest.mark.parametrize(
    ("changes", "test", "message"),
    [
        ({"corpus": "scan", "lang": "length"}, ("jump test 0", "I_JUMP 0"), "not IN: COMMAND OUT"),
        ({"corpus": "g2p", "lang": "kor"}, ("test", "k u"), "0 tabs"),
        (INFLECTION, ("tst\tV;PST", "tsted"), "SOURCE<TAB>FEATURES<TAB>TARGET has two"),
    ],
)
def test_the_corpora_of_other_tasks(
    changes: dict[str, Any], test: tuple[str, str], message: str, tmp_path: Path
) -> None:
    write_published(tmp_path)
    changes = {"root": str(tmp_path), "train": None, "validation_size": 2, **changes}
    splits = pairs_of(tmp_path, **changes)
    assert splits["test"][0] == test
    assert not set(splits["train"]) & set(splits["validation"])
    for path in tmp_path.glob("*.t*"):
        path.write_text("jump\n")
    with pytest.raises(InputError, match=message):
        list(find_splits(data_config(tmp_path, **changes))["train"])
    with pytest.raises(InputError, match=r"has no language None; set data\.lang"):
        find_splits(data_config(tmp_path, **changes | {"lang": None}))
