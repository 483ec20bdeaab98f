"""Pretraining on plain text: stopped, resumed, scored, and fine-tuned on pairs."""

import json
import signal
from pathlib import Path

import pytest
import torch

from tests.helpers.runs.faults import SignalAt
from tests.helpers.runs.outcomes import assert_equals_whole, said
from tests.helpers.runs.processes import finish, overrides_in, tiny_config
from tests.helpers.runs.runs import composed, verb
from transformer.common.errors import InputError
from transformer.tasks.registry import task_class

OWN = ["task=denoising", "tokenizer.sentinels=20", "tokenizer.vocab_size=310"]


@pytest.mark.thorough
@pytest.mark.parametrize("objective", ["spans", "infilling"])
def test_a_pretrained_model_is_resumed_exactly_and_fine_tuned(
    objective: str, tmp_path: Path
) -> None:
    noise = ["loss.label_smoothing=0.0", f"data.denoising.objective={objective}"]
    config = tiny_config(tmp_path, *OWN, *noise, "tokenizer.sampling=0.1")
    finish(config, tmp_path / "whole")
    stops = SignalAt("on_train_batch_end", 18, signal.SIGTERM)
    finish(config, tmp_path / "run", stops, 143)
    finish(config, tmp_path / "run")
    assert_equals_whole(tmp_path, tmp_path / "run")
    [score] = json.loads((tmp_path / "run" / "test.json").read_text())
    assert score["name"] == "perplexity" and 1 < score["score"] < 1000
    assert f"|{objective}:0.15" in score["signature"]
    code, stdout, stderr = verb("evaluate", "checkpoint=run", "split=test", home=tmp_path)
    assert code == 0 and json.loads(stdout)[0]["score"] == score["score"], stderr
    start = f"finetune_from={tmp_path / 'run'}"
    # The sentinels are in the vocabulary: nobody has to name them, and one that is new is added.
    grown = ["tokenizer.vocab_size=310", "tokenizer.sentinels=21"]
    pairs = tiny_config(tmp_path, *grown, start)
    finish(pairs, tmp_path / "fine")
    states = [
        torch.load(tmp_path / name / "checkpoints" / "last.ckpt", weights_only=True)
        for name in ("run", "fine")
    ]
    sizes = [one["transformer"]["config"]["model"]["source_vocab_size"] for one in states]
    assert sizes[1] == sizes[0] + 1 and "Traceback" not in said(tmp_path / "fine")
    assert verb("translate", "checkpoint=fine", home=tmp_path, stdin=b"alpha\n")[0] == 0


def test_settings_of_another_task_are_refused(tmp_path: Path) -> None:
    settings = [*overrides_in(str(tmp_path)), *OWN, "data.target_tag=true"]
    with pytest.raises(InputError, match="task=denoising reads one text, and not data"):
        task_class("denoising")(composed(settings, tmp_path))
    for task in ("translation", "tagging"):
        other = [*overrides_in(str(tmp_path)), f"task={task}", "data.denoising.density=0.3"]
        with pytest.raises(InputError, match=f"not read with task={task}"):
            task_class(task)(composed(other, tmp_path))
