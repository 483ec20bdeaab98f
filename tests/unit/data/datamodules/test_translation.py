"""The wiring: caches, splits, and what validation keeps."""

import logging
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.data.corpora import (
    data_config,
    data_module,
    data_run,
    first_epoch,
    tokenizer_config,
    translation_data,
    write_corpus,
)
from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch, ShapedBatch
from transformer.data.datamodules.translation import TranslationData
from transformer.settings.data import AugmentationConfig
from transformer.settings.sources import VectorsConfig
from transformer.settings.tokenizer import TokenizerConfig


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


def test_batches_of_few_shapes_have_the_same_pairs(folder: Path) -> None:
    few = batches(data_module(folder, batch_shapes=3))
    assert all(isinstance(batch, ShapedBatch) for batch in few)
    assert len({batch.source.shape for batch in few}) <= 3
    labels = [
        sorted(int(label) for batch in made for label in batch.labels if label)
        for made in (few, batches(data_module(folder)))
    ]
    assert labels[0] == labels[1]


def test_a_second_run_reads_only_the_cache(folder: Path) -> None:
    def written() -> dict[Path, int]:
        files = (folder / "cache").rglob("*.*")
        return {path: path.stat().st_mtime_ns for path in files if path.suffix != ".lock"}

    first = batches(data_module(folder, max_length=6, max_left_out=0.9))
    files = written()
    assert {path.suffix for path in files} >= {".arrow", ".model"}
    module = data_module(folder, max_length=6, max_left_out=0.9)
    second = batches(module)
    module.prepare_data()  # as Lightning does
    assert written() == files
    assert [b.source.tolist() for b in first] == [b.source.tolist() for b in second]
    # Text that is left out is judged also from the cache.
    with pytest.raises(InputError, match=r"train: .* longer than 6 .*max_left_out=1 \(now 0\.5\)"):
        data_module(folder, max_length=6, max_left_out=0.5).prepare_data()


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


def test_the_tokenizer_may_be_read_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As programs with Lightning's trainer do; a large text locks the cache to hold pairs out."""
    monkeypatch.setattr("transformer.data.corpora.split._REMEMBERED", 0)
    assert data_module(folder).tokenizer.source_vocab_size == 268


def test_a_budget_that_nobody_measures_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"data\.batch_tokens=auto is measured by"):
        data_module(folder, batch_tokens="auto").train_dataloader()


def test_features_of_the_tokenizer_are_in_the_text(folder: Path) -> None:
    """``data.features`` follows in ``conf/``, and in a program."""
    (folder / "forms.tsv").write_text("walk\tV;PST\twalked\n")
    text = str(folder / "forms.tsv")
    data = data_config(folder, train=text, validation=text)
    tokens = tokenizer_config(algorithm="char", vocab_size=None, features=";")
    assert translation_data(data, tokens).texts("validation").sources == ["walk\tV;PST"]


def test_missing_text_is_named_before_the_work(folder: Path) -> None:
    (folder / "none.tsv").touch()
    config = data_config(folder)
    with pytest.raises(InputError, match=r"not known; set data\.alignment=FILE"):
        translation_data(config, tokenizer_config(), links=True).prepare_data()
    with pytest.raises(InputError, match=r"none\.tsv: the text has no line; fill the file"):
        data_module(folder, validation=str(folder / "none.tsv")).prepare_data()
    assert not (folder / "cache").exists()


def test_learned_positions_have_room_for_every_pair(folder: Path) -> None:
    def prepare(
        positions: int,
        tokens: TokenizerConfig | None = None,
        augmentation: AugmentationConfig | None = None,
        **changes: object,
    ) -> None:
        config = data_run(
            data_config(folder, **changes),
            tokens or tokenizer_config(),
            augmentation=augmentation,
            positions=positions,
        )
        TranslationData(config).prepare_data()

    prepare(longest := _longest(folder) + 1)
    refused = f"train may have a (source|target) of {longest - 1} tokens, .*room for {longest - 2}"
    with pytest.raises(InputError, match=refused):
        prepare(longest - 1)
    prepare(longest - 1, max_length=longest - 2)
    text = str(folder / "text.tsv")
    with pytest.raises(InputError, match=r"train may have a source of 50 tokens"):
        prepare(50, streaming=True, train=[text], validation=text)
    # Drawn subwords and joined pairs are longer than the text.
    sampled, joined = tokenizer_config(sampling=0.1), AugmentationConfig(joined=1.0)
    for drawn in ((sampled, None), (None, joined)):
        with pytest.raises(InputError, match=r"train may have a source of 50 tokens"):
            prepare(50, *drawn)
        prepare(51, *drawn)
    np.save(folder / "a.npy", np.ones((9, 3)))
    (folder / "files.tsv").write_text("a.npy\ta b\n")
    text = str(folder / "files.tsv")
    vectors = {"source_kind": "vectors", "vectors": VectorsConfig(channels=3)}
    words = tokenizer_config(algorithm="words", vocab_size=None)
    prepare(9, words, train=text, validation=text, **vectors)
    with pytest.raises(InputError, match=r"train may have a source of 9 tokens, .* room for 8"):
        prepare(8, words, train=text, validation=text, **vectors)


def _longest(folder: Path) -> int:
    module = data_module(folder)
    source = max(batch.source.shape[1] for batch in batches(module))
    return max(source, max(batch.target_output.shape[1] for batch in batches(module))) - 1


def test_validation_text_keeps_what_the_loss_leaves_out(folder: Path) -> None:
    path = folder / "val.tsv"
    path.write_text("a b\tb a\n\tb\na\t\n" + "a " * 60 + "\tb\na b\tb a\n")
    module = data_module(folder, validation=str(path))
    module.prepare_data()
    module.setup("validate")
    assert sum(batch.size for batch in module.val_dataloader()) == 2
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
