"""The verbs as a user calls them: one small run, trained, scored and put to work."""

import json
import shutil
from pathlib import Path

import torch

from tests.helpers.runs.runs import verb


def test_a_run_leaves_what_it_promises(home: Path) -> None:
    files = {str(path.relative_to(home / "run")) for path in (home / "run").rglob("*")}
    assert files >= {
        "config.yaml",
        "metrics.csv",
        "train.log",
        "test.json",
        "test.hyp",
        "failures.json",
        "failure_thresholds.json",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
        "checkpoints/step-00000030.ckpt",
    }
    scores = json.loads((home / "run" / "test.json").read_text())
    assert [score["name"] for score in scores] == ["BLEU", "chrF2", "TER"]
    assert len((home / "run" / "test.hyp").read_text().split("\n")) == 40 + 1
    header = (home / "run" / "metrics.csv").read_text().split("\n")[0].split(",")
    assert {"train/loss", "train/tokens_per_second", "lr", "train/grad_norm"} <= set(header)
    assert {"val/loss", "val/bleu", "val/chrf", "val/failures/empty"} <= set(header)


def test_evaluate_says_what_training_said_and_takes_files(home: Path) -> None:
    code, stdout, stderr = verb("evaluate", "checkpoint=run", home=home)
    assert code == 0, stderr
    assert json.loads(stdout) == json.loads((home / "run" / "test.json").read_text())
    assert "BLEU" in stderr and "failures of 40 outputs" in stderr
    keys = ["checkpoint=run", "source=validation.src", "reference=validation.tgt", "output=scores"]
    code, stdout, stderr = verb("evaluate", *keys, home=home)
    assert code == 0, stderr
    assert json.loads(stdout)[0]["nrefs"] == "1"
    assert len((home / "scores" / "validation.src.hyp").read_text().split("\n")) == 40 + 1


def test_translate_gives_a_line_for_a_line(home: Path) -> None:
    text = "alpha beta\n\n  \nalpha\u2028beta\x85\rgamma\nno end of line".encode()
    code, stdout, stderr = verb("translate", "checkpoint=run", home=home, stdin=text)
    assert code == 0, stderr
    lines = stdout.split("\n")
    assert len(lines) == 5 + 1
    assert [bool(line) for line in lines] == [True, False, False, True, True, False]


def test_a_checkpoint_or_an_average_needs_no_other_file(home: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.ckpt"
    shutil.copy(home / "run" / "checkpoints" / "best.ckpt", moved)
    torch.load(moved, weights_only=True)
    text = b"alpha beta gamma\n"
    alone = verb("translate", f"checkpoint={moved}", home=tmp_path, stdin=text)
    assert alone[0] == 0, alone[2]
    assert alone == verb("translate", "checkpoint=run", home=home, stdin=text)
    code, stdout, stderr = verb("average", "checkpoint=run", "last=2", home=home)
    assert code == 0, stderr
    averaged = f"checkpoint={stdout.strip()}"
    code, translated, stderr = verb("translate", averaged, home=home, stdin=text)
    assert code == 0, stderr
    assert translated.count("\n") == 1


def test_translate_json_tells_scores_nbest_and_attention(home: Path) -> None:
    keys = ["checkpoint=run", "format=json", "attention=true", "decoding.nbest=2"]
    code, stdout, stderr = verb("translate", *keys, home=home, stdin=b"alpha beta\n\n")
    assert code == 0, stderr
    first, blank = (json.loads(line) for line in stdout.splitlines())
    assert first["score"] == first["nbest"][0]["score"] >= first["nbest"][1]["score"]
    assert len(first["attention"]) == len(first["tokens"])
    assert blank["text"] == ""
