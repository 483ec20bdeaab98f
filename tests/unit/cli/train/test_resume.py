"""Going on with the config that the checkpoint carries."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from transformer.checkpoint.checkpoint import PORTABLE, Portable, read_payload, write_payload
from transformer.checkpoint.run_directory import run_folder
from transformer.checkpoint.trust import TRUST
from transformer.cli.config import compose_config, run_settings
from transformer.cli.train import named_checkpoint, resumed_settings
from transformer.common.errors import InputError
from transformer.model.build import build_transformer


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
