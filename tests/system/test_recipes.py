"""Recipes end to end: stopped, gone on with, refused, and what the manifest says of them."""

import gzip
import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.faults import SignalAt
from tests.helpers.outcomes import said
from tests.helpers.processes import tiny_overrides
from tests.helpers.recipes import recipe
from transformer.model.checkpoint.checkpoint import PORTABLE

BRIEF = ["trainer.max_steps=6", "trainer.val_check_interval=6"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    tiny_overrides(folder)
    return folder


@pytest.fixture
def base(corpus: Path) -> list[str]:
    return [*tiny_overrides(corpus), *BRIEF]


def manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries, by stage."""
    values = json.loads((folder / "manifest.json").read_text())
    return {entry["name"]: entry for entry in values["stages"]}


def assert_complete(folder: Path) -> None:
    """Of every stage the manifest says what made what."""
    made: dict[str, str] = {}
    for entry in manifest(folder).values():
        for files in (entry["inputs"], entry["outputs"]):
            assert files
            for file, digest in files.items():
                assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
                assert made.setdefault(file, digest) == digest
        assert entry["config"] and entry["command"].startswith("python -m transformer ")
        assert entry["call"].startswith("transformer recipe=") and Path(entry["directory"]).is_dir()
        assert entry["begun"] <= entry["ended"] and entry["seconds"] > 0
        assert entry["version"]["torch"] and "commit" in entry["version"]
        for scores in entry["scores"].values():
            assert all("version:" in score["signature"] for score in scores)


def state(folder: Path) -> dict[Path, tuple[int, str]]:
    """When each file was written, and what it holds."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        path: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    }


def test_distill_killed_and_gone_on_with(base: list[str], tmp_path: Path) -> None:
    call = ["recipe=distill", *base, "output=d", "teachers=2", "interpolation=2", "tag=distilled"]
    fault = SignalAt("on_train_batch_end", 4, signal.SIGKILL)
    assert recipe(call, tmp_path, fault_in="03_teacher_2", fault=fault) == -signal.SIGKILL
    folder = tmp_path / "d"
    assert [entry["ended"] is None for entry in manifest(folder).values()] == [False, False, True]
    before = {name: state(folder / name) for name in ("01_text", "02_teacher_1")}
    assert recipe(call, tmp_path) == 0, said(tmp_path)
    assert {name: state(folder / name) for name in before} == before
    assert "going on from d/03_teacher_2/checkpoints/last.ckpt" in said(tmp_path).replace(
        f"{tmp_path}/", ""
    )
    assert_complete(folder)
    entries = manifest(folder)
    assert list(entries)[3:] == [
        *("04_evaluate_teachers", "05_translate", "06_select", "07_student", "08_evaluate"),
    ]
    assert [entries[f"0{n}_teacher_{n - 1}"]["seeds"]["seed"] for n in (2, 3)] == [1, 2]
    assert set(entries["07_student"]["scores"]) == {"test_original"}
    assert set(entries["08_evaluate"]["scores"]) == {"validation"}
    distilled = (folder / "06_select" / "train.tgt").read_text().split("\n")
    nbest = (folder / "05_translate" / "train.tgt.jsonl").read_text().splitlines()
    assert len(distilled) - 1 == len(nbest) == 120
    for line, row in zip(distilled, map(json.loads, nbest), strict=False):
        assert line in [candidate["text"] for candidate in row["nbest"]]
    payload = torch.load(folder / "07_student" / "checkpoints" / "best.ckpt", weights_only=True)
    assert payload[PORTABLE]["tokenizer"]["tags"]["corpora"] == ["distilled"]
    assert "Traceback" not in said(tmp_path)


def test_backtranslate_with_what_is_there_and_what_changes(
    base: list[str], corpus: Path, tmp_path: Path
) -> None:
    monolingual = tmp_path / "more.tgt.gz"
    text = (corpus / "train.tgt").read_text().replace("alpha", "omega")
    monolingual.write_bytes(gzip.compress(text.encode()))
    call = [
        *("recipe=backtranslate", *base, "output=b", f"monolingual={monolingual}"),
        # An untrained model draws letters of all the world, more than the vocabulary holds.
        *("translate.decoding=sampling", "translate.decoding.top_k=1"),
        *("translate.decoding.seed=3", "bitext_share=0.25"),
    ]
    assert recipe(call, tmp_path) == 0, said(tmp_path)
    folder = tmp_path / "b"
    assert_complete(folder)
    entries = manifest(folder)
    assert list(entries) == [
        *("01_text", "02_reverse", "03_evaluate_reverse", "04_translate", "05_forward"),
        "06_evaluate",
    ]
    reverse, forward = (entries[name]["config"]["data"] for name in ("02_reverse", "05_forward"))
    assert (reverse["source"], reverse["target"]) == ("tgt", "src")
    assert entries["04_translate"]["seeds"] == {"decoding.seed": 3}
    synthetic = forward["corpora"]["synthetic"]
    assert synthetic["train"] == ["04_translate/synthetic.src", str(monolingual)]
    assert (synthetic["tag"], synthetic["weight"]) == ("backtranslated", 0.75)
    assert len((folder / "04_translate" / "synthetic.src").read_text().split("\n")) == 121

    before = state(folder)
    assert recipe([*call, "translate.decoding.seed=4"], tmp_path) == 2
    assert "error: b/04_translate was made of something else: decoding.seed: 3" in said(tmp_path)
    monolingual.write_bytes(gzip.compress(text.replace("beta", "eta").encode()))
    assert recipe(call, tmp_path) == 2
    assert f"04_translate was made of something else: {monolingual} has changed" in said(tmp_path)
    assert {p: s for p, s in state(folder).items() if p.name != ".lock"} == {
        p: s for p, s in before.items() if p.name != ".lock"
    }
    # Only if it is wished: this stage and what comes after it.
    assert recipe([*call, "redo_from=04_translate"], tmp_path) == 0, said(tmp_path)
    assert_complete(folder)
    after = state(folder / "02_reverse")
    assert after == {path: before[path] for path in after}
    assert manifest(folder)["05_forward"]["begun"] >= entries["06_evaluate"]["ended"]


def test_bidirectional_begins_again_with_the_weights_of_both_directions(
    base: list[str], tmp_path: Path
) -> None:
    call = ["recipe=bidirectional", *base, "output=x", "callbacks.ema_decay=0.5"]
    assert recipe([*call, "finetune.model.d_model=32"], tmp_path) == 2
    assert said(tmp_path).strip() == (
        "error: 03_finetune begins with the weights of 02_pretrain, and has another vocabulary or "
        "model; set model.d_model=16 for both"
    )
    assert not (tmp_path / "x").exists()

    fault = SignalAt("on_train_batch_end", 3, signal.SIGTERM)
    assert recipe(call, tmp_path, fault_in="03_finetune", fault=fault) == 143
    assert "03_finetune has ended with exit code 143; the same command goes on" in said(tmp_path)
    # The folder may be moved, and called by another name, at any time.
    folder = (tmp_path / "x").rename(tmp_path / "y")
    both = folder / "02_pretrain" / "checkpoints" / "best.ckpt"
    assert recipe([*call, "output=./y"], tmp_path) == 0, said(tmp_path)
    assert "03_finetune: goes on" in said(tmp_path)
    assert said(tmp_path).count("02_pretrain: done before") == 1
    assert said(tmp_path).count("beginning with the weights of") == 1
    assert_complete(folder)
    entries = manifest(folder)
    steps = [entries[n]["config"]["trainer"]["max_steps"] for n in ("02_pretrain", "03_finetune")]
    assert steps == [2, 4]
    assert entries["02_pretrain"]["scores"] == {}
    assert set(entries["03_finetune"]["scores"]) == {"test"}
    assert str(both.relative_to(folder)) in entries["03_finetune"]["inputs"]
    last = torch.load(folder / "03_finetune" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 4
