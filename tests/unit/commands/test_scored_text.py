"""The text of a run that is no longer, or not here: the message says that the run names it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import data_config, write_corpus
from transformer.commands.scored_text import own_text, pairs_to_score, scored_split
from transformer.common.errors import InputError, MissingFile
from transformer.data.corpora.evaluation_text import run_split, validation_pairs
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Corpus
from transformer.settings.data import DataConfig
from transformer.settings.evaluation import ScoredTextKeys
from transformer.settings.run import RunConfig

PLACES: list[Callable[[DataConfig], object]] = [
    lambda data: scored_split(ScoredTextKeys(split="validation"), RunConfig(data=data), "RUN"),
    lambda data: run_split(data, "validation"),
    lambda data: validation_pairs(data, None),
]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    """A run's, whose paths are relative; this is the folder where it was trained."""
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    return data_config(Path(), validation="text.tsv", validation_size=0)


@pytest.mark.parametrize("read", PLACES)
def test_the_text_of_a_run_is_read_where_it_was_trained(
    read: Callable[[DataConfig], object],
    data: DataConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read(data)
    monkeypatch.chdir(tmp_path.parent)
    with pytest.raises(
        MissingFile, match=r"^text\.tsv: no such file.*; the config of the run names it so: call it"
    ):
        read(data)


NO_FOLDER = {"corpus": "folder", "root": "gone"} | dict.fromkeys(("train", "validation", "test"))


@pytest.mark.parametrize("changed", [{}, NO_FOLDER])
def test_elsewhere_own_text_is_advised_where_it_is_taken(
    data: DataConfig,
    changed: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    trained = "call it from the folder where the run was trained"
    with pytest.raises(MissingFile, match=f"{trained}, or give source=FILE and reference=FILE$"):
        PLACES[0](replace(data, **changed))
    with pytest.raises(MissingFile, match=f"{trained}$"):
        PLACES[1](replace(data, **changed))


def test_a_file_of_both_sides_is_read_as_training_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text('{"in": "a", "out": ["x", "y"]}\n{"in": "b", "out": "z"}\n')
    run = RunConfig(data=DataConfig(source="in", target="out"))
    split = own_text(ScoredTextKeys(source=file), run)
    assert split is not None and pairs_to_score(split) == [("a", ("x", "y")), ("b", ("z",))]
    (tmp_path / "test.tsv").write_text("a\tV\tx\na\tV\ty\n")
    keys = ScoredTextKeys(source=tmp_path / "test.tsv")
    tagged = replace(run.data, features=";", repeated_sources=True)
    split = own_text(keys, replace(run, data=tagged))
    assert split is not None and pairs_to_score(split) == [("a\tV", ("x", "y"))]
    with pytest.raises(InputError, match="or one TSV or JSONL file of both as source="):
        own_text(ScoredTextKeys(source=tmp_path / "plain"), run)


def test_a_text_without_a_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(InputError, match=r"empty\.tsv: the text has no line; fill the file"):
        pairs_to_score(Split(Corpus((tmp_path / "empty.tsv",), "x", "y")))
