"""A recipe end to end at tiny size: killed, resumed, and what it reports."""

import hashlib
import json
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.helpers.runs.processes import start_verb, tiny_overrides
from tests.helpers.runs.runs import verb
from transformer.checkpoint.checkpoint import PORTABLE, read_payload
from transformer.checkpoint.run_directory import is_locked

STAGES = [
    "01_text",
    "02_teacher_1",
    "03_teacher_2",
    "04_evaluate_teachers",
    "05_translate",
    "06_select",
    "07_translate_monolingual",
    "08_student",
    "09_evaluate",
]


def state(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """When each file was written, and what it holds."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.thorough
def test_distill_is_killed_and_resumes(tmp_path: Path) -> None:
    more = tmp_path / "more.src"
    more.write_text("alpha beta\nbeta\n", encoding="utf-8")
    call = ["recipe", "recipe=distill", *tiny_overrides(tmp_path), "output=d", "teachers=2"]
    call += ["interpolation=2", "tag=distilled", f"monolingual={more}"]
    folder = tmp_path / "d"
    killed = start_verb(call, tmp_path)
    last = folder / "03_teacher_2" / "checkpoints" / "last.ckpt"
    while killed.process.is_alive() and not last.exists():
        time.sleep(0.05)
    killed.process.kill()
    assert killed.ended()[0] == -9
    while is_locked(folder / "03_teacher_2"):
        time.sleep(0.05)
    before = {name: state(folder / name) for name in STAGES[:2]}
    code, stdout, stderr = verb(*call, home=tmp_path)
    assert code == 0, stderr
    assert {name: state(folder / name) for name in before} == before
    assert "02_teacher_1: done before" in stderr
    assert "03_teacher_2: resumes: " in stderr
    assert "Traceback" not in stderr
    # Each stage is done and marked with what it was made of.
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == STAGES
    for name in STAGES:
        marker = json.loads((folder / f"{name}.json").read_text())
        assert marker["done"] and marker["command"].startswith("python -m transformer ")
        for file, digest in marker["sha256"].items():
            if file != "command":
                assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
    report = json.loads(stdout)
    assert set(report["scores"]) == {"test_original", "validation"}
    assert all("version:" in row["signature"] for rows in report["scores"].values() for row in rows)
    assert report["checkpoint"] == "d/08_student/checkpoints/best.ckpt"
    distilled = (folder / "06_select" / "train.tgt").read_text().split("\n")
    nbest = (folder / "05_translate" / "train.tgt.jsonl").read_text().splitlines()
    assert len(distilled) - 1 == len(nbest) == 120
    for line, row in zip(distilled, map(json.loads, nbest), strict=False):
        assert line in [candidate["text"] for candidate in row["nbest"]]
    payload = read_payload(folder / "08_student" / "checkpoints" / "best.ckpt")
    assert payload[PORTABLE]["tokenizer"]["tags"]["corpora"] == ("distilled",)


@pytest.mark.thorough
def test_backtranslate_trains_on_synthetic_sources(tmp_path: Path) -> None:
    arguments = ["recipe", "recipe=backtranslate", *tiny_overrides(tmp_path), "output=b"]
    monolingual = tmp_path / "more.tgt"
    monolingual.write_text((tmp_path / "train.tgt").read_text().replace("alpha", "omega"))
    # An untrained model draws letters of all the world, more than the vocabulary holds.
    search = ["translate.decoding=sampling", "translate.decoding.top_k=1"]
    code, stdout, stderr = verb(
        *arguments, f"monolingual={monolingual}", *search, "bitext_share=0.25", home=tmp_path
    )
    assert code == 0, stderr
    folder = tmp_path / "b"
    synthetic = (folder / "04_translate" / "synthetic.src").read_text().split("\n")
    assert len(synthetic) == len(monolingual.read_text().split("\n"))
    corpora = OmegaConf.load(folder / "05_forward" / "config.yaml").data.corpora
    train = [str(path) for path in corpora.synthetic.train]
    assert train == ["b/04_translate/synthetic.src", str(monolingual)]
    assert json.loads(stdout)["checkpoint"] == "b/05_forward/checkpoints/best.ckpt"
