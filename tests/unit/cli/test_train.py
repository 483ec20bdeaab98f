"""A run begins or resumes with the settings of its call; nothing is trained."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE, Portable, read_payload, write_payload
from transformer.checkpoint.run_directory import run_folder
from transformer.checkpoint.trust import TRUST
from transformer.cli import train
from transformer.cli.config import compose_config, run_settings
from transformer.cli.train import log_to_stderr, named_checkpoint, resumed_settings
from transformer.common.errors import InputError
from transformer.model.build import build_transformer
from transformer.runs.processes import RankCall
from transformer.settings.run import RunConfig
from transformer.training import cpu_allocator
from transformer.training.distributed.ranks import Rank


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be trained."""
    runs: list[Any] = []
    monkeypatch.setattr("transformer.runs.train.train", lambda *run, **how: runs.append(how))
    monkeypatch.setattr(train, "log_to_stderr", lambda *run, **how: None)
    monkeypatch.setattr(cpu_allocator, "keep_freed_memory", lambda: True)
    return runs


def settings(*overrides: str) -> RunConfig:
    return run_settings(compose_config("train", overrides))


def test_only_rank_0_asks_for_a_sweep(trained: list[Any], tmp_path: Path) -> None:
    """Rank 0 alone has the objective."""
    train.train_as_rank(1, RankCall(settings("objective=val/loss"), tmp_path))
    assert len(trained) == 1
    with pytest.raises(InputError, match="objective=val/loss is for a sweep; add --multirun"):
        train.train_as_rank(0, RankCall(settings("objective=val/loss"), tmp_path))
    assert len(trained) == 1


def test_a_sweep_is_refused_before_its_trials_train(
    trained: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    sweep = ["--multirun", "metrics=exact", f"hydra.sweep.dir={tmp_path}"]
    assert main(["train", *sweep, "objective=val/bleu"]) == 2
    error = capsys.readouterr().err
    assert "error: objective=val/bleu is not there" in error
    assert "val/loss, val/exact_match" in error
    assert not trained


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("optimizer.lr=nan", "optimizer.lr=nan must be above 0"),
        ("precision=64-true", "precision='64-true' must be 32-true or bf16-mixed"),
        ("trainer.strategy=deepspeed", "must be auto or ddp or fsdp"),
        ("trainer.log_every_n_steps=0", "trainer.log_every_n_steps=0 must be at least 1"),
        ("data.prepare_workers=-1", "data.prepare_workers=-1 must be at least 0"),
    ],
)
def test_wrong_values_are_refused_before_anything_is_written(
    trained: list[Any], tmp_path: Path, override: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        train.train_as_rank(0, RankCall(settings(override), tmp_path / "run"))
    assert not trained
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("fit", [True, False])
def test_every_rank_knows_whether_the_size_was_asked_for(
    trained: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: bool
) -> None:
    told: list[str] = []

    def agreed(value: str) -> str:
        told.append(value)
        return told[0]

    monkeypatch.setattr(Rank, "agreed", lambda index, value: agreed(value))
    monkeypatch.setattr(train, "external_rank", lambda: Rank(0, 2, "first", 29500))
    train.train_as_rank(0, RankCall(settings(), tmp_path / "run", fit_vocabulary=fit))
    monkeypatch.setattr(train, "external_rank", lambda: Rank(1, 2, "first", 29500))
    monkeypatch.setattr(train, "end_rank", lambda: None)
    train.run_train([])
    assert [how["fit_vocabulary"] for how in trained] == [fit] * 2


def test_a_search_without_multirun_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "launch=optuna", "seed=2"]) == 2
    assert capsys.readouterr().err == "error: launch=optuna is for a sweep; add --multirun\n"
    for trust, said in (("yes", "must be trust=true or trust=false"), ("true", "is for a check")):
        assert main(["train", f"trust={trust}"]) == 2
        assert capsys.readouterr().err.startswith(f"error: trust={trust} {said}")


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["model.norm=rmsnorm", "model.activation=silu"], ["model.norm='rms", "model.activation"]),
        (["model.dropout=2", "model.num_heads=0"], ["model.num_heads=0 must", "model.dropout=2"]),
        (
            ["decoding.temperature=0.7", "decoding.groups=2"],
            ["decoding.temperature=0.7 has no", "decoding.groups=2 has no"],
        ),
    ],
)
def test_all_that_is_wrong_with_a_group_is_told_at_once(
    trained: list[Any], tmp_path: Path, overrides: list[str], parts: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        train.train_as_rank(0, RankCall(settings(*overrides), tmp_path / "run"))
    said = str(caught.value).split("; also ")
    assert len(said) == len(parts)
    assert all(any(one.startswith(part) for one in said) for part in parts)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sizes = ["model.d_model=16", "model.ffn_dim=16"]
    overrides = [*sizes, "data.root=here", "precision=bf16-mixed", "seed=5"]
    config = run_settings(compose_config("train", overrides))
    model = build_transformer(config.model.sized(24, 24))
    weights = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    part = Portable(replace(config, model=model.config), {}).to_plain()
    payload = {"state_dict": weights, PORTABLE: part}
    write_payload(payload, tmp_path / "run" / "checkpoints" / "tuned.ckpt")
    payload |= {
        **{"optimizer_states": [], "global_step": 1, "callbacks": {}},
        "loops": {"fit_loop": {"state_dict": {}}},
        "recovery": {"losses": [], "in_a_row": 0, "skipped": 0, "returned": 0, "lr": 1e-3},
        "measured": {
            **{"loss": 0.0, "alignment": [0.0, 0.0], "consistency": None},
            **{"learned": 0, "counted": [0, 0]},
        },
    }
    write_payload(payload, tmp_path / "run" / "checkpoints" / "last.ckpt")
    return tmp_path / "run"


@pytest.mark.parametrize("path", ["/etc/passwd", "http://127.0.0.1/x", "../x", "~/x", "a::/x"])
def test_text_outside_that_the_file_names_wants_a_yes(
    run: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRUST)
    file = run / "checkpoints" / "last.ckpt"
    payload = read_payload(file)
    payload[PORTABLE]["config"]["data"]["train"] = [path, "here"]
    write_payload(payload, file)
    with pytest.raises(InputError, match=r"last\.ckpt names data\.train=") as caught:
        resumed_settings(run, ["seed=6"])
    assert path in str(caught.value) and "give it yourself, or add trust=true" in str(caught.value)
    assert resumed_settings(run, ["trust=true"]).data.train == (path, "here")
    assert resumed_settings(run, ["data.train=[/other,here]"]).data.train == ("/other", "here")
    monkeypatch.setenv(TRUST, "true")
    assert resumed_settings(run, []).data.train == (path, "here")
    monkeypatch.delenv(TRUST)
    payload[PORTABLE]["config"]["data"]["train"] = ["here", "here"]
    payload[PORTABLE]["config"]["metrics"]["custom"] = "os:system"
    write_payload(payload, file)
    with pytest.raises(InputError, match=r"names metrics\.custom=os:system"):
        resumed_settings(run, ["seed=6"])


def test_nothing_in_a_config_is_interpolated(run: Path) -> None:
    file = run / "checkpoints" / "last.ckpt"
    payload = read_payload(file)
    payload[PORTABLE]["config"]["data"]["root"] = "x/${oc.env:HOME}"
    write_payload(payload, file)
    assert resumed_settings(file, ["trust=true"]).data.root == "x/${oc.env:HOME}"


def test_the_config_is_that_of_the_run(run: Path, tmp_path: Path) -> None:
    config = resumed_settings(run, [])
    assert (config.model.d_model, config.seed, config.data.root) == (16, 5, "here")
    of_the_file = resumed_settings(run / "checkpoints" / "last.ckpt", [])
    assert config == replace(of_the_file, checkpoint=config.checkpoint)
    for file, message in (
        (run / "checkpoints" / "tuned.ckpt", r"tuned\.ckpt has only weights; resume from"),
        (tmp_path / "nowhere", "nowhere does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            resumed_settings(file, [])
    file = run / "checkpoints" / "last.ckpt"
    assert run_folder(run) == run_folder(file) == run
    assert run_folder(file.rename(tmp_path / "moved.ckpt")) == tmp_path


def test_single_keys_change(run: Path) -> None:
    arguments = [
        f"checkpoint={run}",
        "trainer.max_steps=77",
        "optimizer.betas=[0.8,0.9]",
        "data.root=null",
        "optimizer.lr=5e-4",
        "trainer.max_time=00:01:00:00",
    ]
    config = resumed_settings(run, arguments)
    assert config.checkpoint == run
    assert config.trainer.max_steps == 77
    assert list(config.optimizer.betas) == [0.8, 0.9]
    assert config.data.root is None
    assert config.optimizer.lr == 5e-4
    assert config.trainer.max_time == "00:01:00:00"
    before = resumed_settings(run, [])
    data = replace(before.data, root=None)
    changed = replace(before, data=data, trainer=config.trainer, optimizer=config.optimizer)
    assert config == changed  # and nothing else
    free = resumed_settings(run, ["tokenizer.sampling=0.3", "metrics.tokenize=13a"])
    assert (free.tokenizer.sampling, free.metrics.tokenize) == (0.3, "13a")
    # A copy changes with its key unless it was set.
    assert resumed_settings(run, []).trainer.precision == "bf16-mixed"
    assert resumed_settings(run, ["precision=32-true"]).trainer.precision == "32-true"
    config = resumed_settings(run, ["seed=9", "trainer.max_steps=77"])
    assert (config.data.seed, config.schedule_to_the_end.total) == (9, 77)
    config = resumed_settings(run, ["seed=9", "data.seed=3", "schedule.total=5"])
    assert (config.seed, config.data.seed, config.schedule.total) == (9, 3, 5)
    for key in ("data.seed", "schedule.total"):
        file = run / "checkpoints" / "last.ckpt"
        payload = torch.load(file, weights_only=True)
        group, name = key.split(".")
        payload[PORTABLE]["config"][group][name] = 123
        write_payload(payload, file)
    config = resumed_settings(run, ["seed=9", "trainer.max_steps=77"])
    assert (config.data.seed, config.schedule.total) == (123, 123)


@pytest.mark.parametrize("name", ["müller, (old)", "it's", "a=b"])
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_a_run_is_found_whatever_its_path_is_called(run: Path, name: str, quote: str) -> None:
    renamed = run.rename(run.with_name(name))
    arguments = [f"checkpoint={quote}{renamed}{quote}", "trainer.max_steps=77"]
    assert named_checkpoint(arguments) == renamed
    config = resumed_settings(renamed, arguments)
    assert (config.checkpoint, config.trainer.max_steps) == (renamed, 77)


def test_what_is_held_out_stays(run: Path) -> None:
    file = run / "checkpoints" / "last.ckpt"
    payload = torch.load(file, weights_only=True)
    own = {"corpus": "files", "root": None, "train": "a.tsv", "test": "b.tsv"}
    payload[PORTABLE]["config"]["data"] |= own
    write_payload(payload, file)
    for argument, key in (
        ("data.validation_size=7", "validation_size"),
        ("data.test=null", "test"),
        ("data.test_size=7", None),
        ("data.validation=c.tsv", None),
        ("data.streaming=true", None),
    ):
        if key is None:
            resumed_settings(run, [argument])
            continue
        with pytest.raises(InputError, match=rf"^data\.{key} cannot change: a run resumes with"):
            resumed_settings(run, [argument])
    payload[PORTABLE]["config"]["data"] |= {"corpora": {"web": {"validation_size": 3}}}
    write_payload(payload, file)
    with pytest.raises(InputError, match=r"^data\.corpora\.web\.validation_size cannot change"):
        resumed_settings(run, ["data.corpora.web.validation_size=4"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("model=base", r"model=… cannot be chosen again: .* keys, such as model\.KEY=VALUE$"),
        ("trainer.max_step=3", r"unknown key trainer\.max_step \(did you mean trainer\.max_steps"),
        ("hydra.run.dir=x", r"hydra\.run\.dir cannot change: a run resumes in its own"),
        ("tokenizer.vocab_size=500", r"tokenizer\.vocab_size cannot change: a run resumes with"),
        ("metrics.tokenize=none", r"metrics\.tokenize cannot change: .* it began with"),
        ("seed=1,2", r"seed=1,2: write"),
    ],
)
def test_refusals(run: Path, argument: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        resumed_settings(run, [f"checkpoint={run}", argument])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["checkpoint=b", "checkpoint=runs/a b/x.ckpt"], Path("runs/a b/x.ckpt")),
        (["checkpoint=null"], None),
        (["callbacks.checkpoint=a"], None),
        (["checkpoint=auto"], None),
        (["checkpoint=./auto"], Path("auto")),
        (["checkpoint=runs/lr=3"], Path("runs/lr=3")),
    ],
)
def test_the_named_checkpoint(arguments: list[str], expected: Path | None) -> None:
    assert named_checkpoint(arguments) == expected


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def test_ranks_other_than_0_only_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(3, tmp_path / "train.log")
    logging.getLogger("transformer").warning("beware")
    logging.getLogger("transformer").info("nothing")
    assert capsys.readouterr().err.endswith(" rank 3: warning: beware\n")
    log_to_stderr(0, tmp_path / "train.log")
    logging.getLogger("transformer").info("something")
    assert capsys.readouterr().err.endswith(" something\n")
