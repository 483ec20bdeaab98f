"""What ``checkpoint=auto`` goes on with: a function of what lies there and of the config."""

import errno
import fcntl
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transformer.checkpoint.run_directory import (
    LOCK,
    has_checkpoint,
    is_finished,
    is_locked,
    locked,
    mark_finished,
    mark_unfinished,
)
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


def test_the_newest_unfinished_run_of_the_same_config_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer.runs.resume.is_locked", lambda run: run.name == "taken")
    new = tmp_path / "of_this_call"
    mark_finished(write_run(tmp_path / "finished", changed=3))
    write_run(tmp_path / "other", config=STARTED | {"seed": 2}, changed=3)
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "damaged", config=STARTED | {"seed": "x"}, changed=3)
    write_run(tmp_path / "taken", changed=3)
    write_run(tmp_path / "foreign", config=3, changed=3)
    assert chosen(new) is None
    write_run(tmp_path / "old", changed=1)
    write_run(tmp_path / "new", changed=2)
    assert chosen(new) == "new"


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


@pytest.mark.parametrize("content", [b"", b"a: [1, 2", b"- 1", b"\xff\xfe\x00", b"3"])
def test_a_damaged_config_counts_as_none(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (write_run(tmp_path / "run") / "config.yaml").write_bytes(content)
    assert chosen(tmp_path / "new") is None
    assert "config.yaml is missing or damaged" in caplog.text


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


@pytest.mark.parametrize(
    ("name", "there"),
    [("last", True), ("previous", True), ("best", False), ("step-00000001", False)],
)
def test_what_training_goes_on_from(tmp_path: Path, name: str, there: bool) -> None:
    assert not has_checkpoint(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / f"{name}.ckpt").touch()
    assert has_checkpoint(tmp_path) is there
    for mark, finished in (
        (mark_unfinished, False),
        (mark_finished, True),
        (mark_unfinished, False),
    ):
        mark(tmp_path)
        assert is_finished(tmp_path) is finished


def test_one_living_process_trains_in_a_directory(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    (tmp_path / LOCK).touch()
    ready, looks = os.pipe()
    child = os.fork()
    if not child:  # a process that only looks is in nobody's way
        with open(tmp_path / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            os.write(looks, b"1")
            time.sleep(0.2)
            os._exit(0)
    os.read(ready, 1)
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        os.waitpid(child, 0)
        # The holder may ask, and does not lose the lock by it.
        assert is_locked(tmp_path)
        with pytest.raises(InputError, match="another process trains in"), locked(tmp_path):
            pass
        child = os.fork()
        if not child:
            code = 1
            try:
                assert is_locked(tmp_path)
                with pytest.raises(InputError, match="another process trains in"), locked(tmp_path):
                    pass
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert not is_locked(tmp_path)


def test_a_killed_process_holds_no_lock_even_if_its_children_live(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with locked(tmp_path):
            if not os.fork():  # such as a process that loads data: it may live longer
                os.write(writer, b"1")
                time.sleep(5)
                os._exit(0)
            os.read(reader, 1)
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        pass


def test_what_has_changed_is_named_key_by_key() -> None:
    now = run_config(STARTED | {"seed": 2, "optimizer": {"lr": 0.2}})
    assert changes(CONFIG, now) == ["optimizer.lr: 0.1 before, 0.2 now", "seed: 1 before, 2 now"]
    assert changes(CONFIG, replace(CONFIG, checkpoint=Path("run"))) == []


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_systems_say_in_two_ways_that_a_lock_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def held(file: object, how: int) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / LOCK).touch()
    monkeypatch.setattr(fcntl, "flock", held)
    assert is_locked(tmp_path)
    with pytest.raises(InputError, match="another process trains in"), locked(tmp_path):
        pass

    # A disk without locks is named.
    def none(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / LOCK).touch()
    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(InputError, match="cannot be locked: No locks"), locked(tmp_path):
        pass
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).mkdir()
    with pytest.raises(InputError, match=r"\.lock cannot be locked: "), locked(tmp_path):
        pass


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
