"""A run begins or resumes with the settings of its call; nothing is trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE, Portable, read_payload, write_payload
from transformer.checkpoint.run_directory import run_folder
from transformer.checkpoint.trust import TRUST
from transformer.cli import train
from transformer.cli.config import compose_config, run_settings
from transformer.cli.train import named_checkpoint, resumed_settings
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.build import build_transformer
from transformer.runs.processes import RankCall
from transformer.settings.run import RunConfig
from transformer.training import cpu_allocator


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keywords of each training, which does not begin."""
    runs: list[Any] = []
    monkeypatch.setattr(
        "transformer.runs.train.train", lambda *_, **keywords: runs.append(keywords)
    )
    monkeypatch.setattr(train, "log_to_stderr", lambda *_, **__: None)
    monkeypatch.setattr(cpu_allocator, "keep_freed_memory", lambda: True)
    return runs


def settings(*overrides: str) -> RunConfig:
    return run_settings(compose_config("train", overrides))


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


def test_trials_take_the_model_that_they_fine_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = settings("~experiment", "tokenizer=bytes", "model.d_model=16", "model.pattern=sliding")
    tokenizer = Tokenizer.train(before.tokenizer, lambda: [("a", "b")])
    model = build_transformer(before.model.sized(*2 * [tokenizer.source_vocab_size]))
    weights = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    part = Portable(replace(before, model=model.config), tokenizer.to_state()).to_plain()
    write_payload({"state_dict": weights, PORTABLE: part}, tmp_path / "run.ckpt")
    trials: list[RunConfig] = []
    monkeypatch.setattr(train, "train_run", lambda config, *_, **__: trials.append(config))
    monkeypatch.setattr("sys.argv", ["train.py"])
    sweep = ["train", "--multirun", f"hydra.sweep.dir={tmp_path}/sweep", "experiment=finetune"]
    assert main([*sweep, f"finetune_from={tmp_path}/run.ckpt", "model.dropout=0.1,0.2"]) == 2
    assert "the trial ends before its first validation" in capsys.readouterr().err
    assert [trial.model.dropout for trial in trials] == [0.1, 0.2]
    for trial in trials:
        assert trial.tokenizer == before.tokenizer
        assert (trial.model.d_model, trial.model.pattern) == (16, "sliding")
    assert main([*sweep, "model.dropout=0.1,0.2"]) == 2
    assert "error: experiment=finetune adapts a trained model" in capsys.readouterr().err
    assert len(trials) == 2


def test_what_is_wrong_is_refused_before_anything_is_written(
    trained: list[Any], tmp_path: Path
) -> None:
    # Rank 0 alone has the objective.
    objective = "objective=val/loss"
    train.train_as_rank(1, RankCall(settings(objective), tmp_path / "run"))
    assert len(trained) == 1
    for override, message in (
        (objective, "objective=val/loss is for a sweep; add --multirun"),
        ("optimizer.lr=nan", r"optimizer\.lr=nan must be above 0"),
    ):
        with pytest.raises(InputError, match=message):
            train.train_as_rank(0, RankCall(settings(override), tmp_path / "run"))
    assert len(trained) == 1
    assert not (tmp_path / "run").exists()


def test_a_search_without_multirun_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "launch=optuna", "seed=2"]) == 2
    assert capsys.readouterr().err == "error: launch=optuna is for a sweep; add --multirun\n"
    for trust, message in (("yes", "must be trust=true or"), ("true", "is for a checkpoint")):
        assert main(["train", f"trust={trust}"]) == 2
        assert capsys.readouterr().err.startswith(f"error: trust={trust} {message}")


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
        "optimizer_states": [],
        "global_step": 1,
        "callbacks": {},
        "loops": {"fit_loop": {"state_dict": {}}},
        "recovery": {"losses": [], "in_a_row": 0, "skipped": 0, "returned": 0, "lr": 1e-3},
        "measured": {
            "loss": 0.0,
            "alignment": [0.0, 0.0],
            "consistency": None,
            "learned": 0,
            "counted": [0, 0],
        },
    }
    write_payload(payload, tmp_path / "run" / "checkpoints" / "last.ckpt")
    return tmp_path / "run"


def change_config(run: Path, group: str, **values: Any) -> None:
    """Change values of the config in the last checkpoint of a run."""
    file = run / "checkpoints" / "last.ckpt"
    payload = read_payload(file)
    payload[PORTABLE]["config"][group] |= values
    write_payload(payload, file)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x"])
def test_text_outside_that_the_file_names_needs_trust(
    run: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRUST)
    change_config(run, "data", train=[path, "here"])
    with pytest.raises(InputError, match=rf"last\.ckpt names data\.train=.*{path}.*trust=true"):
        resumed_settings(run, ["seed=6"])
    assert resumed_settings(run, ["trust=true"]).data.train == (path, "here")
    assert resumed_settings(run, ["data.train=[/other,here]"]).data.train == ("/other", "here")
    monkeypatch.setenv(TRUST, "true")
    assert resumed_settings(run, []).data.train == (path, "here")
    monkeypatch.delenv(TRUST)
    change_config(run, "data", train=["here", "here"])
    change_config(run, "metrics", custom="os:system")
    with pytest.raises(InputError, match=r"names metrics\.custom=os:system"):
        resumed_settings(run, ["seed=6"])


def test_the_config_is_that_of_the_run(run: Path, tmp_path: Path) -> None:
    file = run / "checkpoints" / "last.ckpt"
    config = resumed_settings(run, [])
    assert (config.model.d_model, config.seed, config.data.root) == (16, 5, "here")
    assert config == replace(resumed_settings(file, []), checkpoint=config.checkpoint)
    with pytest.raises(InputError, match=r"tuned\.ckpt has only weights; resume from"):
        resumed_settings(run / "checkpoints" / "tuned.ckpt", [])
    with pytest.raises(InputError, match="nowhere does not exist"):
        resumed_settings(tmp_path / "nowhere", [])
    # Nothing is interpolated.
    change_config(run, "data", root="x/${oc.env:HOME}")
    assert resumed_settings(file, ["trust=true"]).data.root == "x/${oc.env:HOME}"
    assert run_folder(run) == run_folder(file) == run
    assert run_folder(file.rename(tmp_path / "moved.ckpt")) == tmp_path


def test_single_keys_change(run: Path) -> None:
    arguments = [
        f"checkpoint={run}",
        "trainer.max_steps=77",
        "optimizer.betas=[0.8,0.9]",
        "data.root=null",
        "tokenizer.sampling=0.3",
    ]
    config = resumed_settings(run, arguments)
    assert config.checkpoint == run
    assert config.trainer.max_steps == 77
    assert list(config.optimizer.betas) == [0.8, 0.9]
    assert config.data.root is None
    assert config.tokenizer.sampling == 0.3
    before = resumed_settings(run, [])
    assert config == replace(
        before,
        data=replace(before.data, root=None),
        trainer=config.trainer,
        optimizer=config.optimizer,
        tokenizer=config.tokenizer,
    )
    # What follows another key changes with it unless it was set.
    assert before.trainer.precision == "bf16-mixed"
    assert resumed_settings(run, ["precision=32-true"]).trainer.precision == "32-true"
    config = resumed_settings(run, ["seed=9", "trainer.max_steps=77"])
    assert (config.data.seed, config.trainer.max_steps) == (9, 77)
    config = resumed_settings(run, ["seed=9", "data.seed=3", "schedule.total=5"])
    assert (config.seed, config.data.seed, config.schedule.total) == (9, 3, 5)
    change_config(run, "data", seed=123)
    change_config(run, "schedule", total=123)
    config = resumed_settings(run, ["seed=9", "trainer.max_steps=77"])
    assert (config.data.seed, config.schedule.total) == (123, 123)
    # As with experiment=g2p: a cosine that ended before would leave a rate of 0.
    change_config(run, "schedule", total=before.trainer.max_steps)
    assert resumed_settings(run, ["trainer.max_steps=9999"]).schedule.total == 9999
    assert resumed_settings(run, ["seed=9"]).schedule.total == before.trainer.max_steps


@pytest.mark.parametrize(("name", "quote"), [("müller, (old)", "'"), ("it's", '"'), ("a=b", "")])
def test_a_run_is_found_whatever_its_path_is_called(run: Path, name: str, quote: str) -> None:
    renamed = run.rename(run.with_name(name))
    config = resumed_settings(renamed, [f"checkpoint={quote}{renamed}{quote}", "seed=77"])
    assert (config.checkpoint, config.seed) == (renamed, 77)


def test_what_is_held_out_stays(run: Path) -> None:
    change_config(run, "data", corpus="files", root=None, train="a.tsv", test="b.tsv")
    for argument in ("data.test_size=7", "data.validation=c.tsv", "data.streaming=true"):
        resumed_settings(run, [argument])
    for argument in ("data.validation_size=7", "data.test=null"):
        key = argument.partition("=")[0]
        with pytest.raises(InputError, match=rf"^{key} cannot change: a run resumes with"):
            resumed_settings(run, [argument])
    change_config(run, "data", corpora={"web": {"validation_size": 3}})
    with pytest.raises(InputError, match=r"^data\.corpora\.web\.validation_size cannot change"):
        resumed_settings(run, ["data.corpora.web.validation_size=4"])


def test_refusals(run: Path) -> None:
    for argument, message in (
        ("model=base", r"model=… cannot be chosen again"),
        ("trainer.max_step=3", r"unknown key trainer\.max_step"),
        ("hydra.run.dir=x", r"hydra\.run\.dir cannot change"),
        ("tokenizer.vocab_size=500", r"tokenizer\.vocab_size cannot change"),
        ("metrics.tokenize=none", r"metrics\.tokenize cannot change"),
        ("seed=1,2", r"seed=1,2: write"),
    ):
        with pytest.raises(InputError, match=rf"^{message}[^\n]*$"):
            resumed_settings(run, [f"checkpoint={run}", argument])


def test_the_named_checkpoint() -> None:
    arguments = ["checkpoint=b", "checkpoint=runs/a b/x.ckpt", "callbacks.checkpoint=a"]
    assert named_checkpoint(arguments) == Path("runs/a b/x.ckpt")
    assert named_checkpoint(["checkpoint=runs/lr=3"]) == Path("runs/lr=3")
    assert named_checkpoint(["checkpoint=./auto"]) == Path("auto")
    for argument in ("checkpoint=auto", "checkpoint=null", "callbacks.checkpoint=a"):
        assert named_checkpoint([argument]) is None
