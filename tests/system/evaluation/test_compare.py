"""Two systems compared as a user does it: a run against its own early checkpoint."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.runs.runs import verb
from transformer.__main__ import main


@pytest.mark.thorough
def test_runs_are_compared(home: Path, tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    for run, name in ((early, "step-00000010"), (late, "best")):
        (run / "checkpoints").mkdir(parents=True)
        shutil.copy(home / "run/checkpoints" / f"{name}.ckpt", run / "checkpoints/best.ckpt")
    call = ("compare", str(early), str(late), "split=test", "output=told", "bootstrap=200")
    code, stdout, stderr = verb(*call, home=home)
    assert code == 0, stderr
    told = json.loads(stdout)
    assert (told["text"], told["sentences"]) == ("test", 40)
    assert "chrF2 by words of the source" in stderr
    references = (home / "test.tgt").read_text().split()
    assert sum(bucket["words"] for bucket in told["by_frequency"]["buckets"]) == len(references)
    assert json.loads((home / "told/comparison.json").read_text()) == told
    # Training has tested the same checkpoint.
    bleu = json.loads((home / "run" / "test.json").read_text())[0]
    assert round(told["metrics"][0]["systems"][1]["score"], 2) == bleu["score"]
    assert told["metrics"][0]["signatures"]["score"] == bleu["signature"]


def test_text_without_trust_is_refused_before_another_run_translates(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = torch.load(home / "run/checkpoints/best.ckpt", weights_only=True)
    data = payload["transformer"]["config"]["data"]
    for key in ("train", "validation", "test"):
        data[key] = [Path(path).name for path in data[key]]
    data["cache"] = ".cache"
    torch.save(payload, home / "near.ckpt")
    monkeypatch.chdir(home)
    monkeypatch.delenv("TRANSFORMER_TRUST")
    assert main(["compare", "near.ckpt", "run", "training=false"]) == 2
    told = capsys.readouterr().err
    assert "error: run names data.train=" in told
    assert "decoding" not in told


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": {"validation": ["validation.src", "other.tgt"]}}, "is not the same text for"),
        ({"task": "tagging"}, "not text to text"),
    ],
)
def test_a_run_of_another_text_or_task_is_refused(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    says: str,
) -> None:
    lines = (home / "validation.tgt").read_text().split("\n")
    (home / "other.tgt").write_text("\n".join([*lines[:6], "alpha alpha", *lines[7:]]))
    payload = torch.load(home / "run/checkpoints/best.ckpt", weights_only=True)
    config = payload["transformer"]["config"]
    payload["transformer"]["config"] = OmegaConf.to_container(OmegaConf.merge(config, changes))
    torch.save(payload, home / "other.ckpt")
    monkeypatch.chdir(home)
    assert main(["compare", "run", "other.ckpt", "training=false"]) == 2
    [error] = [line for line in capsys.readouterr().err.split("\n") if line.startswith("error:")]
    assert says in error


def test_a_metric_that_a_run_names_is_chosen_by_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "letters.py").write_text(
        "def count(texts, _):\n    return [len(text) for text in texts]\n"
    )
    payload = torch.load(home / "run/checkpoints/best.ckpt", weights_only=True)
    payload["transformer"]["config"]["metrics"]["custom"] = "letters:count"
    torch.save(payload, home / "own.ckpt")
    monkeypatch.chdir(home)
    call = ["compare", "own.ckpt", "validation.tgt", "scores=[custom]", "training=false"]
    assert main([*call, "moved_by=custom"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [metric["name"] for metric in told["metrics"]] == ["custom"]
