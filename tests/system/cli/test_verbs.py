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
    assert all("version:" in score["signature"] for score in scores)
    assert len((home / "run" / "test.hyp").read_text().split("\n")) == 40 + 1
    header = (home / "run" / "metrics.csv").read_text().split("\n")[0].split(",")
    assert {"train/loss", "train/tokens_per_second", "train/padding", "lr"} <= set(header)
    assert {"train/grad_norm", "val/loss", "val/bleu", "val/chrf"} <= set(header)
    assert {"val/failures/empty", "val/failures/repetition"} <= set(header)


def test_evaluate_says_what_training_said_and_takes_files(home: Path) -> None:
    code, stdout, stderr = verb("evaluate", "checkpoint=run", home=home)
    assert code == 0, stderr
    assert json.loads(stdout) == json.loads((home / "run" / "test.json").read_text())
    assert "BLEU" in stderr and "failures of 40 outputs" in stderr
    code, stdout, stderr = verb(
        *("evaluate", "checkpoint=run", "source=validation.src", "reference=validation.tgt"),
        *("output=scores", "decoding.beam_size=1"),
        home=home,
    )
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
    code, stdout, stderr = verb(
        *("translate", "checkpoint=run", "format=json", "attention=true", "decoding.nbest=2"),
        home=home,
        stdin=b"alpha beta\n\n",
    )
    assert code == 0, stderr
    first, blank = (json.loads(line) for line in stdout.splitlines())
    assert len(first["nbest"]) == 2
    assert first["score"] == first["nbest"][0]["score"] >= first["nbest"][1]["score"]
    assert len(first["attention"]) == len(first["tokens"])
    assert blank["text"] == ""


def test_attention_writes_a_page_and_measures(home: Path, tmp_path: Path) -> None:
    code, stdout, stderr = verb(
        "attention", "checkpoint=run", "text=alpha, (beta", "sentences=30", home=home
    )
    assert code == 0, stderr
    page, numbers = (home / line for line in stdout.splitlines())
    assert page == home / "run" / "attention" / "attention.html"
    assert "Attention: alpha, (beta</title>" in page.read_text()
    told = json.loads(numbers.read_text())
    assert (told["source"], told["sentences"], told["forced"]) == ("alpha, (beta", 30, False)
    cross = told["attention"][2]
    assert cross["keys"][-1] == cross["queries"][-1] == "</s>"
    assert len(cross["heads"]) == 2 * 4
    # No gold links are known for this corpus.
    assert {head["alignment_error"] for head in cross["heads"]} == {None}
    assert "heads over 30 sentence pairs" in stderr
    # A given target needs no corpus.
    code, stdout, stderr = verb(
        *("attention", f"checkpoint={home}/run/checkpoints/best.ckpt", "text=alpha beta"),
        *("target=omega, [omega]", "sentences=0", f"output={tmp_path}/here"),
        home=tmp_path,
    )
    assert code == 0, stderr
    assert stdout.splitlines() == [f"{tmp_path}/here/attention.{kind}" for kind in ("html", "json")]
    told = json.loads((tmp_path / "here" / "attention.json").read_text())
    assert (told["target"], told["forced"], told["sentences"]) == ("omega, [omega]", True, 1)
    assert told["attention"][1]["queries"][0] == "<s>"
