"""The wiring: caches, splits, and what validation keeps."""

import logging
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import (
    data_config,
    data_module,
    first_epoch,
    tokenizer_config,
    translation_data,
    write_corpus,
)
from transformer.common.errors import InputError
from transformer.common.files import locked
from transformer.data.batching.batch import Batch
from transformer.data.datamodules.translation import TranslationData


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path).parent


def batches(module: TranslationData) -> list[Batch]:
    module.prepare_data()
    module.setup("fit")
    return first_epoch(module)


def test_an_epoch_has_every_training_pair_once(folder: Path) -> None:
    module = data_module(folder)
    texts = [
        text
        for batch in batches(module)
        for text in module.tokenizer.decode_target(batch.target_output.tolist())
    ]
    held_out = [reference for (reference,) in module.texts("validation").references]
    assert len(texts) == 72
    whole = [line.split("\t")[1] for line in (folder / "text.tsv").read_text().splitlines()]
    assert sorted(texts + held_out) == sorted(whole)


def test_a_second_run_reads_only_the_cache(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def written() -> dict[Path, int]:
        files = (folder / "cache").rglob("*.*")
        return {path: path.stat().st_mtime_ns for path in files if path.suffix != ".lock"}

    caplog.set_level(logging.INFO)
    first = batches(data_module(folder, max_length=6, max_left_out=0.9))
    files = written()
    assert {path.suffix for path in files} >= {".arrow", ".model"}
    caplog.clear()
    module = data_module(folder, max_length=6, max_left_out=0.9)
    second = batches(module)
    module.prepare_data()  # as Lightning does
    assert written() == files
    assert [b.source.tolist() for b in first] == [b.source.tolist() for b in second]
    # Text that is left out is judged also from the cache.
    (line,) = (line for line in caplog.messages if "kept" in line)
    assert line.startswith("train: ") and "longer than 6 tokens (data.max_length)" in line
    with pytest.raises(InputError, match=r"train: .* longer than 6 .*max_left_out=1 \(now 0\.5\)"):
        data_module(folder, max_length=6, max_left_out=0.5).prepare_data()


@pytest.mark.parametrize(
    ("sizes", "level", "line"),
    [
        ((9, 5), "INFO", "train: 14 of 81 pairs are held out (data.validation_size, "),
        ((41, 0), "WARNING", "train: 41 of 81 pairs are held out (data.validation_size, "),
    ],
)
def test_the_log_counts_the_pairs_held_out(
    folder: Path, caplog: pytest.LogCaptureFixture, sizes: tuple[int, int], level: str, line: str
) -> None:
    module = data_module(folder, validation_size=sizes[0], test_size=sizes[1])
    with caplog.at_level(logging.INFO):
        module.prepare_data()
    (held,) = [record for record in caplog.records if "held out" in record.getMessage()]
    assert held.levelname == level and held.getMessage().startswith(line)


def test_other_text_or_filters_are_encoded_anew(folder: Path) -> None:
    def files() -> set[str]:
        return {path.name for path in (folder / "cache").glob("train-*")}

    batches(data_module(folder))
    assert len(files()) == 1
    batches(data_module(folder, max_length=12))
    assert len(files()) == 2
    with (folder / "text.tsv").open("a") as file:
        file.write("a b\tb a\n")
    batches(data_module(folder))
    assert len(files()) == 3


def test_links_are_encoded_only_for_guided_alignment(folder: Path) -> None:
    (folder / "links").write_text("0-0\n" * 81)
    plain = batches(data_module(folder, alignment=str(folder / "links")))
    assert all(batch.alignment is None for batch in plain)
    config = data_config(folder, alignment=str(folder / "links"))
    linked = batches(translation_data(config, tokenizer_config(), links=True))
    assert [batch.source.tolist() for batch in linked] == [b.source.tolist() for b in plain]
    assert all(b.alignment is not None and b.alignment.any((1, 2)).all() for b in linked)
    (folder / "links").write_text("0-0\n" * 80 + "\n")
    batches(translation_data(config, tokenizer_config(), links=True))
    assert len(list((folder / "cache").glob("train-*"))) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, r"not known; set data\.alignment=FILE .*alignment_weight=0"),
        ({"test": ["x.en", "x.de"]}, r"x\.en: no such file.*; x\.de: no such file"),
        ({"validation": "none.tsv"}, r"none\.tsv: the text has no line; fill the file"),
    ],
)
def test_missing_text_is_named_before_the_work(
    folder: Path, changes: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "none.tsv").touch()
    config = data_config(folder, **changes)
    with pytest.raises(InputError, match=says):
        translation_data(config, tokenizer_config(), links=not changes).prepare_data()
    assert not (folder / "cache").exists()


def test_validation_text_keeps_what_the_loss_leaves_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "val.tsv"
    path.write_text("a b\tb a\n\tb\na\t\n" + "a " * 60 + "\tb\na b\tb a\n")
    module = data_module(folder, validation=str(path))
    module.prepare_data()
    with caplog.at_level(logging.INFO):
        module.setup("validate")
    assert sum(batch.size for batch in module.val_dataloader()) == 2
    assert "validation: 3 of 5 pairs" in caplog.text
    assert module.texts("validation")[0] == ["a b", "", "a", "a " * 60, "a b"]
    # Nothing may be left.
    (folder / "long.tsv").write_text("a " * 60 + "\tb\n\tb\n")
    module = data_module(folder, validation=str(folder / "long.tsv"))
    with pytest.raises(InputError, match=r"long\.tsv: all .* than 50 tokens; .*max_length"):
        module.setup("validate")


def test_validation_is_the_same_each_epoch_and_not_sampled(folder: Path) -> None:
    module = data_module(folder, sampling=0.3)
    module.setup("validate")
    loader = module.val_dataloader()
    first, second = ([batch.source.tolist() for batch in loader] for _ in range(2))
    assert first == second
    best = data_module(folder)
    best.setup("validate")
    assert first == [batch.source.tolist() for batch in best.val_dataloader()]


def test_splits_and_their_texts(folder: Path) -> None:
    module = data_module(folder, test_size=4)
    assert module.splits == ("validation", "test")
    sources, references, _ = module.texts("test")
    assert [(source[::-1],) for source in sources] == references
    with pytest.raises(InputError, match="no split 'dev'; it has train, validation, test"):
        module.texts("dev")


def test_features_of_a_file_need_a_tokenizer_of_features(folder: Path) -> None:
    config = data_config(folder, features=";")
    with pytest.raises(InputError, match=r"data.features=';': training reads tokenizer.features"):
        _ = translation_data(config, tokenizer_config()).tokenizer


def test_a_given_tokenizer_is_used(folder: Path) -> None:
    tokenizer = data_module(folder).tokenizer
    (folder / "text.tsv").write_text("x y z\tz y x\n" * 10 + "x z\tz x\n" * 10)
    text = str(folder / "text.tsv")
    module = data_module(folder, sampling=0.4, initial_tokenizer=tokenizer, validation=text)
    assert module.tokenizer.fingerprint == tokenizer.fingerprint
    assert module.tokenizer.config.sampling == 0.4
    assert sum(batch.size for batch in batches(module)) == 2


def prepare(folder: Path, name: str) -> None:
    """Prepare the corpus in a process of its own, which leaves a log and the fingerprint."""
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger().addHandler(logging.FileHandler(folder / f"{name}.log"))
    module = data_module(folder)
    module.prepare_data()
    (folder / f"{name}.txt").write_text(module.tokenizer.fingerprint)


def test_processes_share_one_preparation(folder: Path) -> None:
    start = multiprocessing.get_context("fork").Process
    runs = [start(target=prepare, args=(folder, name)) for name in "ab"]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0, 0]
    assert (folder / "a.txt").read_text() == (folder / "b.txt").read_text()
    logs = [(folder / f"{name}.log").read_text() for name in "ab"]
    assert sum("pairs, every line kept" in log for log in logs) == 1


def test_a_cache_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"with data\.cache=FOLDER"), locked(tmp_path / "file"):
        pass


@pytest.mark.parametrize(("size", "warned"), [(6, True), (None, False)])
def test_many_unknown_tokens_are_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture, size: int | None, warned: bool
) -> None:
    tokenizer = tokenizer_config(algorithm="words", vocab_size=size)
    with caplog.at_level(logging.INFO):
        translation_data(data_config(folder), tokenizer).prepare_data()
    assert any(line.startswith("unknown tokens of source and target") for line in caplog.messages)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == any("are unknown" in record.getMessage() for record in warnings)
