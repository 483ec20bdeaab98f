"""Recipes that are refused before anything begins, in one line."""

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.model.models import tiny_payload
from tests.helpers.runs.plans import plan, refused
from transformer.checkpoint.checkpoint import PORTABLE
from transformer.cli.config import compose_config


def write_checkpoint(run: Path, source: str, target: str, *, lora_rank: int = 0) -> None:
    """One that says no more than what a plan reads."""
    (run / "checkpoints").mkdir(parents=True)
    data = {"source": source, "target": target}
    payload = tiny_payload()
    decoding = OmegaConf.to_container(compose_config("train", []).decoding)
    config = payload[PORTABLE]["config"]
    config |= {"data": data, "decoding": decoding, "finetune_from": "base" if lora_rank else None}
    config["model"]["lora_rank"] = lora_rank
    torch.save(payload, run / "checkpoints" / "best.ckpt")


@pytest.mark.thorough
def test_models_of_the_other_direction_are_refused(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "forward", "src", "tgt")
    write_checkpoint(tmp_path / "backward", "tgt", "src")
    (tmp_path / "mono").write_text("alpha\n")
    back = ["recipe=backtranslate", *base, f"monolingual={tmp_path}/mono", "output=r"]
    plan([*back, f"reverse={tmp_path}/backward"], capsys)
    assert refused([*back, f"reverse={tmp_path}/forward"], capsys) == (
        f"reverse: {tmp_path}/forward translates src to tgt, and tgt to src is wanted; give another"
    )
    distilled = ["recipe=distill", *base, "output=r"]
    plan([*distilled, f"teachers=[{tmp_path}/forward]"], capsys)
    both = f"teachers=[{tmp_path}/forward,{tmp_path}/backward]"
    assert refused([*distilled, both], capsys).startswith(f"teachers: {tmp_path}/backward transl")


def test_what_is_said_for_stages_that_are_not_there_is_refused(
    base: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The paths are those of a home folder, and found there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    write_checkpoint(tmp_path / "run", "tgt", "src")
    (tmp_path / "mono").write_text("alpha\n")
    back = ["recipe=backtranslate", *base, "monolingual=~/mono", "reverse=~/run", "output=r"]
    assert f"input={tmp_path}/mono" in plan(back, capsys)["03_translate"]
    assert refused([*back, "reverse.model.d_modle=64"], capsys).startswith(
        "reverse.model.d_modle=64 does nothing: there is no stage reverse"
    )
    write_checkpoint(tmp_path / "teacher", "src", "tgt")
    distilled = ["recipe=distill", *base, "teachers=['~/teacher']", "output=r", "teacher.seed=3"]
    assert refused(distilled, capsys).startswith("teacher.seed=3 does nothing")


DISTILL = ["recipe=distill", "output=r"]
BACK = ["recipe=backtranslate", "output=r"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["recipe=distil"],
            "recipe=distil names no recipe; choose recipe=distill or recipe=backtr",
        ),
        (["recipe=distill"], "recipe needs a value for output="),
        (["recipe=distill", "output=o${x}"], "o${x}: ${ stands for the value of another key"),
        ([*DISTILL, "teacherz=3"], "unknown key teacherz (did you mean teach"),
        ([*DISTILL, "teachers=0"], "teachers=0 must be at least 1"),
        ([*DISTILL, "teachers=[]"], "teachers=[] names no run"),
        ([*DISTILL, "student.data.train=x"], "student.data.train cannot be set"),
        ([*DISTILL, "model.d_model=-3"], "model.d_model=-3 must be at least 1"),
        ([*DISTILL, "hydra.run.dir=x"], "hydra.run.dir=x is not for a recipe"),
        ([*DISTILL, "seed"], "seed is not for a recipe, which takes KEY=VALUE"),
        ([*DISTILL, "student.data.target_tag=true"], "data.target_tag=true does not go with a"),
        ([*DISTILL, "translate.alignment=true"], "translate.alignment cannot"),
        ([*DISTILL, "evaluate.terms=gone"], "gone: no such file"),
        ([*DISTILL, "evaluate.scores=[blue]"], "evaluate: metric blue is unknown"),
        ([*DISTILL, "translate.flags=3"], "translate: flags=3 must be true or false"),
        ([*BACK, "monolingual=a.tsv"], "monolingual=a.tsv must be plain"),
        ([*BACK, "monolingual=a", "bitext_share=1"], "bitext_share=1.0 "),
        ([*DISTILL, "monolingual=nix", "dry_run=true"], "nix: no such file"),
    ],
)
def test_refusals(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(arguments, capsys).startswith(message)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]
