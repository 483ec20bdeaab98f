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
from transformer.settings.run import RunConfig, run_config

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
    chosen = resumed_or_new(CONFIG, folder, named=named)
    assert "\n" not in chosen.reason
    if chosen.config.checkpoint is None:
        assert chosen.folder == folder
        return None
    assert chosen.config.checkpoint == chosen.folder
    return chosen.folder.name


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


def test_folders_of_others_break_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_dir = Path.is_dir

    def closed(path: Path) -> bool:
        if path.name == "run":
            raise PermissionError(13, "Permission denied")
        return is_dir(path)

    write_run(tmp_path / "run")
    monkeypatch.setattr(Path, "is_dir", closed)
    assert chosen(tmp_path / "new") is None


def test_a_named_directory_goes_on_if_it_holds_a_checkpoint(tmp_path: Path) -> None:
    write_run(tmp_path / "other")
    (tmp_path / "run").mkdir()
    assert chosen(tmp_path / "run", named=True) is None
    (tmp_path / "run").rmdir()
    mark_finished(run := write_run(tmp_path / "run"))
    for config in (
        STARTED,
        # With another learning rate it goes on as well, and has it.
        STARTED | {"optimizer": {"lr": 0.2}},
        STARTED | {"tokenizer": {"vocab_size": 300, "sampling": 0.5}},
        # Nor does a config that cannot be read.
        *({"tokenizer": None}, {"tokenizer": "ha"}),
    ):
        (run / "config.yaml").write_text(json.dumps(config))
        assert chosen(run, named=True) == "run"


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("task", {"task": "tagging"}),
        ("tokenizer.vocab_size", {"tokenizer": {"vocab_size": 299, "sampling": 0.0}}),
        ("metrics.tokenize", {"metrics": {"tokenize": "13a"}}),
    ],
)
def test_a_named_directory_of_another_run_is_refused(
    tmp_path: Path, key: str, config: dict[str, Any]
) -> None:
    run = write_run(tmp_path / "run", config=STARTED | config)
    with pytest.raises(
        InputError, match=f"run holds a run with another {key}; give another folder"
    ):
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

    alike = [("a.ckpt", "./a.ckpt"), ("a.ckpt", "copy.ckpt"), ("one", "link"), ("moved", "a.ckpt")]
    assert not any(differs(*starts) for starts in [*alike, ("moved", "moved"), (None, None)])
    unlike = [("a.ckpt", "b.ckpt"), ("a.ckpt", "one"), ("one", "two"), ("one", "nix"), ("x", "nix")]
    assert all(differs(*starts) for starts in [*unlike, (None, "a.ckpt"), ("a.ckpt", None)])


def test_what_has_changed_is_named_key_by_key() -> None:
    now = run_config(STARTED | {"seed": 2, "optimizer": {"lr": 0.2}})
    assert changes(CONFIG, now) == ["optimizer.lr: 0.1 before, 0.2 now", "seed: 1 before, 2 now"]
    assert changes(CONFIG, replace(CONFIG, checkpoint=Path("run"))) == []


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"num_heads": 8}, "model.num_heads"),
        ({"activation": "gelu"}, "model.activation"),
        ({"max_length": 64}, None),
        ({"positions": "learned", "max_length": 64}, "model.positions"),
        ({"dropout": 0.5, "attention": "eager"}, None),
        ({"relative_buckets": 16}, None),
        ({"head_dim": 32, "num_kv_heads": 4}, None),
        ({"head_dim": 64}, "model.head_dim"),
        ({"num_kv_heads": 2}, "model.num_kv_heads"),
        ({"positions": "relative", "relative_buckets": 16}, "model.positions"),
    ],
)
def test_a_resumed_run_keeps_its_architecture(model: dict[str, Any], key: str | None) -> None:
    """These have weights of the same shapes."""

    def of_model(**changes: Any) -> RunConfig:
        return replace(CONFIG, model=replace(before, **changes))

    before = ModelConfig(positions="rotary", max_length=32)
    assert fixed_key_that_differs(of_model(), of_model(**model)) == key
    learned = of_model(positions="learned")
    longer = of_model(positions="learned", max_length=64)
    assert fixed_key_that_differs(learned, longer) == "model.max_length"
    buckets = of_model(positions="relative")
    fewer = of_model(positions="relative", relative_buckets=16)
    assert fixed_key_that_differs(buckets, fewer) == "model.relative_buckets"


@pytest.mark.parametrize(("size", "key"), [(5, "data.corpora.new"), (0, None)])
def test_a_renamed_corpus_may_hold_out_other_pairs(size: int, key: str | None) -> None:
    corpus = CorpusConfig(validation_size=size, test_size=0)
    before, now = (
        replace(CONFIG, data=DataConfig("files", corpora={name: corpus})) for name in ("old", "new")
    )
    assert fixed_key_that_differs(before, now) == key
