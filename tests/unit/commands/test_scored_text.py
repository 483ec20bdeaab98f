"""The text and the metrics of a score: those of the run, changed by the keys of the command."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.data.corpora import data_config, write_corpus
from transformer.checkpoint.trust import TRUST
from transformer.commands.scored_text import (
    changed_metrics,
    own_text,
    pairs_to_score,
    require_trusted,
    scored_split,
)
from transformer.common.errors import InputError, MissingFile
from transformer.data.corpora.evaluation_text import run_split, validation_pairs
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Corpus
from transformer.settings.data import DataConfig
from transformer.settings.evaluation import ScoredTextKeys, ScoringKeys
from transformer.settings.metrics import MetricsConfig
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


def test_the_text_of_a_run_is_read_where_it_was_trained(
    data: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for read in PLACES:
        assert read(data)
    monkeypatch.chdir(tmp_path.parent)
    missing = r"^text\.tsv: no such file.*; the config of the run names it so: call it"
    for read in PLACES:
        with pytest.raises(MissingFile, match=missing):
            read(data)
    # Own text is advised where it is taken.
    no_files = dict.fromkeys(("train", "validation", "test"))
    for config in (data, replace(data, corpus="folder", root="gone", **no_files)):
        with pytest.raises(MissingFile, match="or give source=FILE and reference=FILE"):
            PLACES[0](config)
        with pytest.raises(MissingFile, match="from the folder where the run was trained"):
            PLACES[1](config)


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
    documents = tmp_path / "documents.jsonl"
    rows = ((1, "a"), (1, "b"), (2, "c"))
    lines = (f'{{"in": "{text}", "out": "x", "doc": {document}}}\n' for document, text in rows)
    documents.write_text("".join(lines))
    in_documents = replace(run, data=replace(run.data, documents=2, document_key="doc"))
    split = own_text(ScoredTextKeys(source=documents), in_documents)
    assert split is not None
    assert [source for source, _ in pairs_to_score(split)] == ["a", "b", "", "c"]
    split = own_text(ScoredTextKeys(source=file), in_documents)
    assert split is not None and len(pairs_to_score(split)) == 2
    with pytest.raises(InputError, match="or one TSV, JSONL or Parquet file of both"):
        own_text(ScoredTextKeys(source=tmp_path / "plain"), run)


def test_a_text_without_a_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(InputError, match=r"empty\.tsv: the text has no line; fill the file"):
        pairs_to_score(Split(Corpus((tmp_path / "empty.tsv",), "x", "y")))


RUN = RunConfig(metrics=MetricsConfig(lowercase=True, choose="chrf"))
FOREIGN = RunConfig(metrics=MetricsConfig(custom="os:getcwd"))


def test_named_keys_alone_change_the_metrics_of_a_run() -> None:
    keys = ScoringKeys(tokenize="char", lowercase=False)
    changed = MetricsConfig(tokenize="char", lowercase=False, choose="chrf")
    assert changed_metrics(keys, RUN, "RUN") == changed
    assert changed_metrics(ScoringKeys(), RUN, "RUN") == RUN.metrics
    assert changed_metrics(ScoringKeys(), None, "RUN") == MetricsConfig()
    with pytest.raises(InputError, match="tokenize=words cannot be used"):
        changed_metrics(ScoringKeys(tokenize="words"), RUN, "RUN")


def test_a_program_of_the_run_needs_trust_unless_the_command_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TRUST, raising=False)
    for check in (changed_metrics, require_trusted):
        with pytest.raises(InputError, match=r"^RUN names metrics\.custom=os:getcwd.*trust=true"):
            check(ScoringKeys(), FOREIGN, "RUN")
        check(ScoringKeys(trust=True), FOREIGN, "RUN")
    changed = changed_metrics(ScoringKeys(custom="own:score"), FOREIGN, "RUN")
    assert changed.custom == "own:score"
