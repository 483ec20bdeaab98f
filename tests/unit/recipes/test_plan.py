"""Plans: what each stage is called with, and what is refused before anything begins."""

import shlex
from pathlib import Path

import pytest
import torch

from tests.helpers.processes import tiny_overrides
from transformer.cli.recipe import main
from transformer.model.checkpoint import PORTABLE
from transformer.model.formats import FORMAT


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "mono").write_text("alpha\n")
    return tiny_overrides(folder)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err.removeprefix("error: ").rstrip()


def plan(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """The arguments of each stage, verb first, as a dry run prints them."""
    assert main([*arguments, "dry_run=true"]) == 0
    said = capsys.readouterr()
    stages = [part.splitlines() for part in said.out.split("# ")[1:]]
    names = [part[0].removesuffix(" (new)") for part in stages]
    commands = [shlex.split(part[-1]) for part in stages]
    assert all(command[:3] == ["python", "-m", "transformer"] for command in commands)
    return {name: command[3:] for name, command in zip(names, commands, strict=True)}


def test_a_dry_run_writes_nothing(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = plan(["recipe=distill", *base, f"output={tmp_path}/r", "text=distilled"], capsys)
    assert list(stages) == [
        *("01_text", "02_teacher_1", "03_evaluate_teachers", "04_translate", "05_student"),
        "06_evaluate",
    ]
    assert not list(tmp_path.iterdir())
    train = f"data.train=[{tmp_path}/r/01_text/train.src,{tmp_path}/r/04_translate/train.tgt]"
    assert train in stages["05_student"]


def test_candidates_are_compared_as_trainings_are_scored(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["recipe=distill", *base, "interpolation=2", "metrics=tokenised", "output=r"]
    [arguments] = [one for name, one in plan(call, capsys).items() if name.endswith("_select")]
    assert {"tokenize=none", "lowercase=false"} <= set(arguments)


def test_a_stage_has_its_own_arguments_and_the_last_of_a_key_counts(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["pretrain.model=small", "finetune.model=small", "finetune.trainer.max_steps=99"]
    call = ["recipe=bidirectional", *base, "model=base", "model.norm_order=pre", *own, "output=r"]
    stages = plan(call, capsys)
    for name in ("02_pretrain", "03_finetune"):
        assert [one for one in stages[name] if one.startswith("model=")] == ["model=small"]
    assert "trainer.max_steps=10" in stages["02_pretrain"]
    assert "trainer.max_steps=99" in stages["03_finetune"]
    assert "finetune_from=r/02_pretrain/checkpoints/best.ckpt" in stages["03_finetune"]


def test_the_pocket_corpus_and_its_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    stages = plan(["recipe=bidirectional", "experiment=pocket", "output=r", "seed=4"], capsys)
    assert stages["01_text"] == [
        "text",
        *("data.seed=4", "splits=[train,validation,test]", "output=r/01_text"),
    ]
    assert "experiment=pocket" in stages["03_finetune"] and "seed=4" in stages["03_finetune"]
    assert "data.corpus=files" in stages["03_finetune"]


def test_the_text_of_a_folder_is_read_by_its_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train.de", "train.en.gz", "valid.de", "valid.en"):
        (tmp_path / name).touch()
    call = ["recipe=bidirectional", "data=folder", "data.source=en", "data.target=de"]
    stages = plan([*call, f"data.root={tmp_path}", "data.test_size=0", "output=r"], capsys)
    assert f"data.train=[{tmp_path}/train.en.gz,{tmp_path}/train.de]" in stages["01_text"]
    assert "data.train=[r/01_text/train.en,r/01_text/train.de]" in stages["03_finetune"]
    assert not any(one.startswith("data.root") for one in stages["03_finetune"])


def test_a_published_corpus_is_scored_in_each_stage_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "dev", "test"):
        for language in ("en", "ja"):
            (tmp_path / f"{split}.{language}").touch()
    call = ["recipe=bidirectional", "data=tanaka_enja", f"data.root={tmp_path}", "output=r"]
    stages = plan(call, capsys)
    assert f"data.root={tmp_path}" in stages["01_text"]
    assert "data=tanaka_enja" in stages["03_finetune"]
    (tmp_path / "dev.ja").unlink()
    assert "has no dev.ja" in refused(call, capsys)


def test_teachers_have_seeds_of_their_own_from_that_of_the_call_on(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stages = plan(["recipe=distill", *base, "seed=7", "teachers=2", "output=r"], capsys)
    seeds = [one for name in stages for one in stages[name] if one.startswith("seed=")]
    assert seeds == ["seed=7", "seed=8", "seed=7"]


def test_the_search_that_the_user_names_counts_with_interpolation_too(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["recipe=distill", *base, "interpolation=2", "output=my out,dir=1"]
    wide = plan([*call, "translate.decoding.beam_size=7"], capsys)["04_translate"]
    assert {"decoding.beam_size=7", "decoding.nbest=2", "format=json"} <= set(wide)
    drawn = plan([*call, "translate.decoding=sampling"], capsys)["04_translate"]
    assert {"decoding=sampling", "decoding.nbest=2"} <= set(drawn)
    assert "output=my out,dir=1/04_translate/train.tgt.jsonl" not in drawn
    assert "output='my out,dir=1/04_translate/train.tgt.jsonl'" in drawn
    assert not any(one.startswith("decoding.beam_size") for one in drawn)


def write_checkpoint(run: Path, source: str, target: str) -> None:
    """One that says no more than what a plan reads."""
    (run / "checkpoints").mkdir(parents=True)
    data = {"source": source, "target": target}
    portable = {"format": FORMAT, "model": {}, "config": {"data": data, "decoding": {}}}
    torch.save({PORTABLE: portable, "state_dict": {}}, run / "checkpoints" / "best.ckpt")


def test_models_of_the_other_direction_are_refused(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "forward", "src", "tgt")
    write_checkpoint(tmp_path / "backward", "tgt", "src")
    (tmp_path / "mono").write_text("alpha\n")
    back = ["recipe=backtranslate", *base, f"monolingual={tmp_path}/mono", "output=r"]
    plan([*back, f"reverse={tmp_path}/backward"], capsys)
    assert refused([*back, f"reverse={tmp_path}/forward"], capsys) == (
        f"reverse={tmp_path}/forward translates src to tgt, and tgt to src is wanted; give another"
    )
    distilled = ["recipe=distill", *base, "output=r"]
    plan([*distilled, f"teachers=[{tmp_path}/forward]"], capsys)
    both = f"teachers=[{tmp_path}/forward,{tmp_path}/backward]"
    assert refused([*distilled, both], capsys).startswith(f"teachers: {tmp_path}/backward transl")
    (tmp_path / "mono").write_text("")
    assert "/mono has no line; give text" in refused(back, capsys)


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
        "reverse.model.d_modle=64 does nothing: this call has no stage reverse"
    )
    write_checkpoint(tmp_path / "teacher", "src", "tgt")
    distilled = ["recipe=distill", *base, "teachers=['~/teacher']", "output=r", "teacher.seed=3"]
    assert refused(distilled, capsys).startswith("teacher.seed=3 does nothing")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "recipe= is missing; choose backtranslate or bidirectional or distill"),
        (["recipe=distil"], "recipe=distil is unknown; choose backtranslate or bid"),
        (["recipe=distill"], "output= is missing; recipe needs a value for it"),
        (["recipe=distill", "output=r", "teacherz=3"], "unknown key teacherz (did you mean teach"),
        (["recipe=distill", "output=r", "teachers"], "'teachers' is not of the form KEY=VALUE"),
        (["recipe=distill", "output=r", "teachers=0"], "teachers must be at least 1, or name"),
        (["recipe=distill", "output=r", "teachers=[nix]"], "checkpoint=nix does not exist"),
        (["recipe=distill", "output=r", "teachers=x"], "teachers='x' must be a whole number or a"),
        (["recipe=distill", "output=r", "tag=x", "text=distilled"], "tag=x tells distilled from"),
        (["recipe=distill", "output=r", "interpolation=1"], "interpolation=1 must be at least 2"),
        (
            ["recipe=distill", "output=r", "student.model.d_modle=3"],
            "unknown key model.d_modle (did",
        ),
        (
            ["recipe=distill", "output=r", "student.data.train=x"],
            "student.data.train cannot be set",
        ),
        (["recipe=distill", "output=r", "model.d_model=-3"], "model.d_model=-3 must be at least 1"),
        (["recipe=distill", "output=r", "hydra.run.dir=x"], "hydra.run.dir=x is not for a recipe"),
        (["recipe=distill", "output=r", "data.documents=3"], "data.documents=3 does not go with a"),
        (["recipe=distill", "output=r", "task=tagging"], "task=tagging does not go with a recipe"),
        (["recipe=distill", "output=r", "translate.beam=3"], "translate: unknown key beam"),
        (["recipe=distill", "output=r", "redo_from=x", "dry_run=true"], "redo_from=x does nothing"),
        (["recipe=distill", "output=''"], "output= names no folder; give one"),
        (["recipe=distill", "output=null"], "output= names no folder; give one"),
        (["recipe=distill", "output=o${x}"], "o${x}: ${ stands for the value of another key"),
        (
            ["recipe=distill", "output=r", "teachers=2", "teacher.seed=5"],
            "teacher.seed cannot be set with teachers=2, which decides it",
        ),
        (
            ["recipe=distill", "output=r", "interpolation=2", "translate.decoding.nbest=3"],
            "translate.decoding.nbest cannot be set with interpolation=2",
        ),
        (
            ["recipe=distill", "output=r", "interpolation=9", "translate.decoding.beam_size=3"],
            "translate: decoding.nbest=9 is more than decoding.beam_size=3",
        ),
        (
            ["recipe=distill", "output=r", "translate.decoding.beam_size=0"],
            "translate: decoding.beam_size=0 must be at least 1",
        ),
        (["recipe=distill", "output=r", "translate.device=gpuu"], "translate: device=gpuu cannot"),
        (["recipe=distill", "output=r", "evaluate.precision=int9"], "evaluate: precision='int9'"),
        (["recipe=distill", "output=r", "translate.alignment=true"], "translate.alignment cannot"),
        (
            ["recipe=distill", "output=r", "student.loss=r_drop", "student.model.dropout=0"],
            "loss.consistency=r_drop compares two passes",
        ),
        (
            ["recipe=bidirectional", "output=r", "finetune.tokenizer.vocab_size=99"],
            "03_finetune begins with the weights of 02_pretrain, and has another vocabulary",
        ),
        (["recipe=backtranslate", "output=r"], "monolingual= is missing"),
        (
            ["recipe=backtranslate", "output=r", "monolingual=a.tsv"],
            "monolingual=a.tsv must be plain",
        ),
        (
            ["recipe=backtranslate", "output=r", "monolingual=a", "bitext_share=1"],
            "bitext_share=1.0 ",
        ),
        (
            ["recipe=backtranslate", "output=r", "monolingual=nix"],
            "nix: no such file",
        ),
        (
            ["recipe=bidirectional", "output=r", "pretraining=1"],
            "pretraining=1.0 must be in (0, 1)",
        ),
        (
            ["recipe=bidirectional", "output=r", "trainer.max_steps=1"],
            "pretraining=0.3333 of trainer",
        ),
        (
            [
                "recipe=bidirectional",
                "output=r",
                "tokenizer.joint=false",
                "model.tie_embeddings=none",
            ],
            "tokenizer.joint=false: both directions need one vocabulary",
        ),
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
