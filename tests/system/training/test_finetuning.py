"""Fine-tuning: a new run with the weights and the vocabulary of another."""

import csv
import re
import signal
from pathlib import Path

import pytest
import torch

from tests.helpers.runs.faults import SignalAt
from tests.helpers.runs.outcomes import differences, outcome
from tests.helpers.runs.processes import finish, tiny_config, tiny_overrides
from tests.helpers.runs.runs import run
from transformer.checkpoint.checkpoint import PORTABLE, read_merged, read_payload
from transformer.common.errors import InputError
from transformer.runs.finetuning import initial_payload
from transformer.runs.resume import resumed_config
from transformer.runs.train import fit
from transformer.settings.run import RunConfig
from transformer.tasks.registry import make_task

BRIEF = ["trainer.max_steps=6", "trainer.val_check_interval=3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and a run with a moving average of its weights and a tag in its vocabulary."""
    folder = tmp_path_factory.mktemp("home")
    finish(tiny_config(folder, *BRIEF, *mixed(folder), "callbacks.ema_decay=0.5"), folder / "first")
    return folder


def mixed(folder: Path) -> list[str]:
    """The corpus twice: plain, and with a tag."""
    files = [f"{s}:[{folder}/{s}.src,{folder}/{s}.tgt]" for s in ("train", "validation", "test")]
    return [
        "data.train=null",
        "data.validation=null",
        "data.test=null",
        f"data.corpora={{plain:{{{','.join(files)}}},other:{{{files[0]},tag:like_this,"
        "validation_size:0,test_size:0}}",
    ]


def second(home: Path, *overrides: str) -> RunConfig:
    """The config of a run on one corpus, fine-tuned from the first."""
    return tiny_config(home, *BRIEF, f"finetune_from={home}/first", "seed=5", *overrides)


def test_it_begins_with_the_averaged_weights_and_nothing_else(home: Path, tmp_path: Path) -> None:
    fault = SignalAt("on_train_batch_end", 1, signal.SIGKILL)
    finish(second(home), tmp_path / "run", fault, -signal.SIGKILL)
    begun = read_payload(tmp_path / "run" / "checkpoints" / "last.ckpt")
    before = read_payload(home / "first" / "checkpoints" / "best.ckpt")
    assert begun["global_step"] == begun["lr_schedulers"][0]["last_epoch"] == 0
    assert begun["optimizer_states"][0]["state"] == {}
    assert begun["state_dict"].keys() == before["state_dict"].keys()
    for name, weight in before["state_dict"].items():
        assert torch.equal(begun["state_dict"][name], weight), name
    assert any(
        not torch.equal(before["current_model_state"][name], weight)
        for name, weight in before["state_dict"].items()
    )
    tokenizers = [payload[PORTABLE]["tokenizer"] for payload in (begun, before)]
    assert torch.equal(tokenizers[0]["source"], tokenizers[1]["source"])
    assert tokenizers[0]["tags"]["corpora"] == ("like_this",)


def test_another_model_is_refused_with_what_to_set(home: Path) -> None:
    for overrides, message in (
        (["model.num_heads=4", "model.dropout=0.3"], "set model.num_heads=2$"),
        (["tokenizer.vocab_size=290", "tokenizer.sampling=0.1"], "set tokenizer.vocab_size=285$"),
        (["finetune_from=nix"], "^finetune_from: checkpoint=nix"),
        (["task=language_modeling", "model.decoder_layers=0"], "trained for task=translation"),
    ):
        config = second(home, *overrides)
        with pytest.raises(InputError, match=message):
            make_task(config, initial_payload(config, Path(str(config.finetune_from))))


def test_what_may_change_and_another_score_is_logged(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputError, match="finetune_from cannot change"):
        resumed_config(home / "first", {"finetune_from": f"{home}/other"})
    caplog.set_level("INFO", "transformer.runs.finetuning")
    free = ["model.dropout=0.5", "model.pattern=sliding", "model.max_length=99"]
    assert initial_payload(second(home, *free), home / "first")
    assert not caplog.messages
    initial_payload(second(home, "metrics=tokenized"), home / "first")
    assert "metrics.tokenize=13a" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_begin_with_the_weights_of_one(
    home: Path, tmp_path: Path, strategy: str
) -> None:
    arguments = [*tiny_overrides(home), *BRIEF, f"finetune_from={home}/first", "hydra.run.dir=run"]
    arguments += [f"trainer={strategy}", "trainer.accelerator=cpu", "trainer.devices=2"]
    arguments += ["optimizer.lr=1e-12", "schedule=constant", "schedule.warmup=0"]
    done = run("-m", "transformer", "train", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    after = read_payload(tmp_path / "run" / "checkpoints" / "best.ckpt")["state_dict"]
    before = read_payload(home / "first" / "checkpoints" / "best.ckpt")["state_dict"]
    for name, weight in before.items():
        assert torch.allclose(after[name], weight, atol=1e-6), name


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("overrides", "fixed"),
    [
        (["model.freeze=[embeddings,norms]"], r"model\.(.*_embedding|projection|.*norm)\."),
        (["model.lora_rank=2"], r"(?!.*lora_)"),
    ],
)
def test_what_is_frozen_stays_bit_for_bit_and_has_no_moments(
    home: Path, tmp_path: Path, overrides: list[str], fixed: str
) -> None:
    config = second(home, *overrides, "callbacks.ema_decay=0.5", "gradient_checkpointing=true")
    finish(config, tmp_path / "whole")
    fault = SignalAt("on_train_batch_end", 4, signal.SIGKILL)
    finish(config, tmp_path / "run", fault, -signal.SIGKILL)
    finish(config, tmp_path / "run")
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []
    payload = read_payload(tmp_path / "run" / "checkpoints" / "last.ckpt")
    before = read_payload(home / "first" / "checkpoints" / "best.ckpt")["state_dict"]
    for part in ("state_dict", "current_model_state"):
        for name, weight in payload[part].items():
            if re.match(fixed, name):
                assert torch.equal(weight, before[name]), name
    weights = payload["state_dict"].items()
    learned = {weight.data_ptr() for name, weight in weights if not re.match(fixed, name)}
    assert len(payload["optimizer_states"][0]["state"]) == len(learned)


@pytest.mark.thorough
def test_a_run_with_adapters_is_read_as_one_without(home: Path, tmp_path: Path) -> None:
    finish(second(home, "model.lora_rank=2"), tmp_path / "run")
    file = tmp_path / "run" / "checkpoints" / "best.ckpt"
    raw, merged = read_payload(file), read_merged(file)
    before = read_payload(home / "first" / "checkpoints" / "best.ckpt")
    assert merged["state_dict"].keys() == before["state_dict"].keys() < raw["state_dict"].keys()
    assert merged[PORTABLE]["config"]["model"] == before[PORTABLE]["config"]["model"]
    again = second(home, f"finetune_from={tmp_path}/run", "model.lora_rank=3")
    _, task, updates = fit(again, tmp_path / "again")
    assert updates == 6
    weights = task.module.model.state_dict()
    for name, weight in merged["state_dict"].items():
        assert torch.equal(weights[name.removeprefix("model.")], weight), name


def test_the_score_before_is_the_first_row_and_may_be_the_best(home: Path, tmp_path: Path) -> None:
    finish(second(home, *mixed(home), "optimizer.lr=1e-12"), tmp_path / "run")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        first = next(csv.DictReader(file))
    assert first["step"] == "0"
    assert all(first[name] for name in ("val/loss", "val/bleu", "val/bleu_plain"))
