"""Which run ``checkpoint=auto`` resumes, and which keys a resumed run cannot change."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transformer.checkpoint.run_directory import locked, mark_finished
from transformer.common.errors import InputError
from transformer.runs.resume import changes, fixed_key_that_differs, resumed_or_new
from transformer.settings.data import CorpusConfig, DataConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import completed, run_config

STARTED: dict[str, Any] = {
    "tokenizer": {"vocab_size": 300, "sampling": 0.0},
    "metrics": {"tokenize": "none"},
    "optimizer": {"lr": 0.1},
}
CONFIG = run_config(STARTED)


def write_run(folder: Path, *, config: object = STARTED, changed: int = 1) -> Path:
    """A run directory with a checkpoint of this time."""
    (folder / "checkpoints").mkdir(parents=True)
    last = folder / "checkpoints" / "last.ckpt"
    last.touch()
    os.utime(last, (changed, changed))
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder


def chosen(folder: Path, *, named: bool = False) -> str | None:
    """The name of the run that is resumed; None for a new one."""
    config, run, reason = resumed_or_new(CONFIG, folder, named=named)
    assert "\n" not in reason
    if config.checkpoint is None:
        assert run == folder
        return None
    assert config.checkpoint == run
    return run.name


def test_what_train_completes_makes_no_other_run(tmp_path: Path) -> None:
    """As the tied embeddings of a program's config with two kinds of tokens."""
    values: dict[str, Any] = {"tokenizer": {"source": "char", "target": "words"}}
    config = run_config(values)
    saved = values | {"model": {"tie_embeddings": "decoder"}}
    assert run_config(saved) == completed(config) != config
    run = write_run(tmp_path / "run", config=saved)
    for named in (True, False):
        assert resumed_or_new(config, run, named=named).config.checkpoint == run


def test_the_newest_unfinished_run_of_the_same_config_is_resumed(tmp_path: Path) -> None:
    new = tmp_path / "of_this_call"
    mark_finished(write_run(tmp_path / "finished", changed=3))
    write_run(tmp_path / "other", config=STARTED | {"seed": 2}, changed=3)
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "foreign", config=3, changed=3)
    taken = write_run(tmp_path / "taken", changed=3)
    with locked(taken):
        assert chosen(new) is None
        write_run(tmp_path / "old", changed=1)
        write_run(tmp_path / "new", changed=2)
        assert chosen(new) == "new"
    assert chosen(new) == "taken"


def test_a_named_directory_goes_on_unless_it_holds_another_run(tmp_path: Path) -> None:
    write_run(tmp_path / "other")
    (tmp_path / "run").mkdir()
    assert chosen(tmp_path / "run", named=True) is None
    (tmp_path / "run").rmdir()
    run = write_run(tmp_path / "run")
    mark_finished(run)
    for config in (
        STARTED | {"optimizer": {"lr": 0.2}},
        STARTED | {"tokenizer": {"vocab_size": 300, "sampling": 0.5}},
        {"tokenizer": "damaged"},
    ):
        (run / "config.yaml").write_text(json.dumps(config))
        assert chosen(run, named=True) == "run"
    for key, changed in (
        ("task", {"task": "tagging"}),
        ("tokenizer.vocab_size", {"tokenizer": {"vocab_size": 299, "sampling": 0.0}}),
        ("metrics.tokenize", {"metrics": {"tokenize": "13a"}}),
    ):
        (run / "config.yaml").write_text(json.dumps(STARTED | changed))
        with pytest.raises(InputError, match=f"holds a run with another {key};"):
            chosen(run, named=True)


def test_the_start_of_a_run_may_be_moved_or_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, weights in (("a.ckpt", "same"), ("copy.ckpt", "same"), ("b.ckpt", "other")):
        Path(name).write_text(weights)
    for name in ("one", "two"):
        Path(name).mkdir()
    Path("link").symlink_to("one")

    def differs(before: str | None, now: str | None) -> bool:
        starts = [run_config(STARTED | {"finetune_from": start}) for start in (before, now)]
        return fixed_key_that_differs(*starts) == "finetune_from"

    alike = [("a.ckpt", "copy.ckpt"), ("one", "link"), ("moved", "a.ckpt"), (None, None)]
    assert not any(differs(*starts) for starts in alike)
    unlike = [("a.ckpt", "b.ckpt"), ("a.ckpt", "one"), ("one", "two"), ("x", "nix")]
    assert all(differs(*starts) for starts in [*unlike, (None, "a.ckpt"), ("a.ckpt", None)])


def test_what_has_changed_is_named_key_by_key() -> None:
    now = run_config(STARTED | {"seed": 2, "optimizer": {"lr": 0.2}})
    assert changes(CONFIG, now) == ["optimizer.lr: 0.1 before, 0.2 now", "seed: 1 before, 2 now"]
    assert changes(CONFIG, replace(CONFIG, checkpoint=Path("run"))) == []


@pytest.mark.parametrize(
    ("positions", "model", "key"),
    [
        ("rotary", {"activation": "gelu"}, "model.activation"),
        ("rotary", {"max_length": 64}, None),
        ("learned", {"max_length": 64}, "model.max_length"),
        ("rotary", {"dropout": 0.5, "attention": "eager"}, None),
        ("rotary", {"relative_buckets": 16}, None),
        ("relative", {"relative_buckets": 16}, "model.relative_buckets"),
        ("rotary", {"head_dim": 32, "num_kv_heads": 4}, None),
        ("rotary", {"head_dim": 64}, "model.head_dim"),
        ("rotary", {"num_kv_heads": 2}, "model.num_kv_heads"),
    ],
)
def test_a_resumed_run_keeps_its_architecture(
    positions: Any, model: dict[str, Any], key: str | None
) -> None:
    before = replace(CONFIG, model=ModelConfig(positions=positions, max_length=32))
    now = replace(before, model=replace(before.model, **model))
    assert fixed_key_that_differs(before, now) == key


@pytest.mark.parametrize(("size", "key"), [(5, "data.corpora.new"), (0, None)])
def test_a_renamed_corpus_may_hold_out_other_pairs(size: int, key: str | None) -> None:
    corpus = CorpusConfig(validation_size=size, test_size=0)
    before, now = (
        replace(CONFIG, data=DataConfig("files", corpora={name: corpus})) for name in ("old", "new")
    )
    assert fixed_key_that_differs(before, now) == key
