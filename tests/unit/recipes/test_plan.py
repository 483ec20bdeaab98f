"""Plans of recipes: the arguments of each stage, and what is refused before the first one runs."""

import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.model.models import tiny_payload
from tests.helpers.runs.processes import tiny_overrides
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE
from transformer.cli.arguments import config_folder
from transformer.cli.config import compose_config, run_settings
from transformer.cli.recipe import RECIPES, plan_recipe
from transformer.common.files import CONFIG_DIR
from transformer.common.own_code import TRUST
from transformer.data.corpora.resolve import corpus_configs
from transformer.recipes.distill import Distill
from transformer.settings.data import check_unused_keys

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "mono").write_text("alpha\n")
    return tiny_overrides(folder)


def refused(arguments: list[str], capsys: Capture) -> str:
    assert main(["recipe", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err.removeprefix("error: ").rstrip()


def plan(arguments: list[str], capsys: Capture) -> dict[str, list[str]]:
    """The arguments of each stage, verb first, as a dry run prints them."""
    assert main(["recipe", *arguments, "dry_run=true"]) == 0
    printed = capsys.readouterr()
    stages = [part.splitlines() for part in printed.out.split("# ")[1:]]
    names = [part[0].removesuffix(" (new)") for part in stages]
    commands = [shlex.split(part[-1]) for part in stages]
    assert all(command[:3] == ["python", "-m", "transformer"] for command in commands)
    return {name: command[3:] for name, command in zip(names, commands, strict=True)}


def write_checkpoint(run: Path, source: str, target: str, *, lora_rank: int = 0) -> None:
    """A checkpoint with what a plan reads of it."""
    (run / "checkpoints").mkdir(parents=True)
    payload = tiny_payload()
    decoding = OmegaConf.to_container(compose_config("train", []).decoding)
    config = payload[PORTABLE]["config"]
    config["data"] = {"source": source, "target": target}
    config["decoding"] = decoding
    config["finetune_from"] = "base" if lora_rank else None
    config["model"]["lora_rank"] = lora_rank
    torch.save(payload, run / "checkpoints" / "best.ckpt")


def argument(arguments: list[str], key: str) -> str:
    """The one argument with a key."""
    [found] = [text for text in arguments if text.startswith(f"{key}=")]
    return found


def test_a_dry_run_writes_nothing(base: list[str], tmp_path: Path, capsys: Capture) -> None:
    stages = plan(["recipe=distill", *base, f"output={tmp_path}/r", "text=distilled"], capsys)
    assert list(stages) == [
        "01_text",
        "02_teacher_1",
        "03_evaluate_teachers",
        "04_translate",
        "05_student",
        "06_evaluate",
    ]
    assert not list(tmp_path.iterdir())
    train = f"data.train=[{tmp_path}/r/01_text/train.src,{tmp_path}/r/04_translate/train.tgt]"
    assert train in stages["05_student"]
    teacher = f"checkpoint={tmp_path}/r/02_teacher_1/checkpoints/best.ckpt"
    assert teacher in stages["04_translate"]


def test_ray_translates_to_the_file_that_the_student_reads(
    base: list[str], tmp_path: Path, capsys: Capture
) -> None:
    pytest.importorskip("ray")
    call = ["recipe=distill", *base, f"output={tmp_path}/r", "text=distilled"]
    stages = plan([*call, "translate.launch=ray"], capsys)
    assert {"launch=ray", "join=true"} <= {*stages["04_translate"]}
    assert stages["05_student"] == plan(call, capsys)["05_student"]
    assert "student.launch=ray is not for" in refused([*call, "student.launch=ray"], capsys)


def test_the_teachers_translate_more_text(base: list[str], tmp_path: Path, capsys: Capture) -> None:
    more = tmp_path / "more.src.gz"
    more.touch()
    call = ["recipe=distill", *base, "output=r", f"monolingual={more}", "tag=told"]
    stages = plan(call, capsys)
    assert f"input={more}" in stages["05_translate_monolingual"]
    corpora = argument(stages["06_student"], "data.corpora")
    assert f"train:[{more},r/05_translate_monolingual/synthetic.tgt]" in corpora
    assert "original:" in corpora and corpora.count("tag:told") == 2
    # Without the original text, teachers wrote all of it: no tag is needed.
    student = plan([*call, "text=distilled"], capsys)["06_student"]
    corpora = argument(student, "data.corpora")
    assert "original:" not in corpora and "tag:" not in corpora


def test_arguments_of_a_stage_override_those_of_all_trainings(
    base: list[str], capsys: Capture
) -> None:
    call = [
        "recipe=distill",
        *base,
        "model=base",
        "metrics=json:dumps",
        "data.repeated_sources=true",
        "seed=7",
        "teachers=2",
        "output=r",
        "teacher.model=small",
        "student.model=small",
        "student.trainer.max_steps=99",
        "evaluate_teachers.averaging=log_probability",
        "evaluate.decoding.beam_size=2",
    ]
    stages = plan(call, capsys)
    teachers = [stages["02_teacher_1"], stages["03_teacher_2"]]
    student = stages["06_student"]
    for training in (*teachers, student):
        assert argument(training, "model") == "model=small"
        assert "metrics=json:dumps" in training
    assert "trainer.max_steps=30" in teachers[0] and "trainer.max_steps=99" in student
    seeds = [argument(training, "seed") for training in (*teachers, student)]
    assert seeds == ["seed=7", "seed=8", "seed=7"] and "data.seed=8" in teachers[1]
    files = [f"r/0{number}_teacher_{number - 1}/checkpoints/best.ckpt" for number in (2, 3)]
    assert f"checkpoint=[{','.join(files)}]" in stages["05_translate"]
    for name in ("04_evaluate_teachers", "07_evaluate"):
        assert "custom='json:dumps'" in stages[name]
    assert "averaging=log_probability" in stages["04_evaluate_teachers"]
    assert "decoding.beam_size=2" in stages["07_evaluate"]
    assert "averaging" not in " ".join(stages["07_evaluate"])
    assert "data.repeated_sources=true" in stages["01_text"]


OWN_CODE = """
from pytorch_lightning import Callback
from torch import nn

class Watch(Callback):
    pass

class Thin(nn.Linear):
    def __init__(self, d_model, ffn_dim, *, activation, dropout):
        super().__init__(d_model, d_model)
"""

EXPERIMENT = """# @package _global_
defaults:
  - override /data: g2p
  - override /metrics: exact
  - _self_
data: {{root: {root}, lang: dut}}
model: {{feed_forward: "own_code:Thin", tie_embeddings: none}}
callbacks: {{own: ["own_code:Watch"], patience: 3}}
"""


@pytest.mark.thorough
def test_every_stage_of_any_experiment_is_checked_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"dut_{split}.tsv").write_text("a\tb\n")
    (tmp_path / "own_code.py").write_text(OWN_CODE)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    file = tmp_path / "conf" / "experiment" / "mine.yaml"
    file.write_text(EXPERIMENT.format(root=tmp_path))
    monkeypatch.setenv(CONFIG_DIR, str(tmp_path / "conf"))
    monkeypatch.delenv(TRUST, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    call = ["recipe=distill", "experiment=mine", "output=r"]
    stages = plan(call, capsys)
    # Each call begins with its verb and --config-dir FOLDER.
    trained = [arguments[3:] for arguments in stages.values() if arguments[0] == "train"]
    assert len(trained) == 2
    for arguments in trained:
        assert f"data.root={tmp_path}" not in arguments
        config = run_settings(compose_config("train", arguments))
        for corpus in corpus_configs(config.data).values() or [config.data]:
            check_unused_keys(corpus)
        assert config.metrics.choose == "exact_match"
    # The recipe trusts the layers of the models that it trains.
    read = [arguments for arguments in stages.values() if arguments[0] in ("translate", "evaluate")]
    assert len(read) == 3 and all("trust=true" in arguments for arguments in read)
    assert "own_code:Thin is no Callback" in refused(
        [*call, "callbacks.own=['own_code:Thin']"], capsys
    )


def test_teachers_write_candidates_by_the_search_of_their_validation(
    base: list[str], tmp_path: Path, capsys: Capture
) -> None:
    write_checkpoint(tmp_path / "teacher", "src", "tgt")
    call = ["recipe=distill", *base, "output=r", f"teachers=[{tmp_path}/teacher]"]

    def settings(candidates: int) -> set[str]:
        stages = plan([*call, f"interpolation={candidates}"], capsys).values()
        [found] = [arguments for arguments in stages if arguments[0] == "translate"]
        return {argument for argument in found if argument.startswith("decoding")}

    # Its beam is 5.
    assert settings(2) == {"decoding.nbest=2"}
    assert settings(8) == {"decoding.beam_size=8", "decoding.nbest=8"}
    payload = torch.load(tmp_path / "teacher" / "checkpoints" / "best.ckpt", weights_only=True)
    payload[PORTABLE]["config"]["decoding"] |= {"algorithm": "sampling", "beam_size": 1}
    torch.save(payload, tmp_path / "teacher" / "checkpoints" / "best.ckpt")
    assert settings(2) == {"decoding=beam", "decoding.nbest=2"}


def test_a_model_of_several_corpora_has_their_directions_alone(
    base: list[str], tmp_path: Path, capsys: Capture
) -> None:
    write_checkpoint(tmp_path / "forward", "src", "tgt")
    file = tmp_path / "forward" / "checkpoints" / "best.ckpt"
    payload = torch.load(file, weights_only=True)
    corpora = {"bitext": {"train": ["a", "b"]}, "synthetic": {"train": ["c", "d"]}}
    payload[PORTABLE]["config"]["data"]["corpora"] = corpora
    torch.save(payload, file)
    (tmp_path / "mono").write_text("alpha\n")
    call = ["recipe=backtranslate", *base, f"monolingual={tmp_path}/mono", "output=r"]
    message = refused([*call, f"reverse={tmp_path}/forward"], capsys)
    assert "translates src to tgt, and tgt to src is wanted" in message
    # The reverse model has the words of the other language.
    reverse = plan([*call, "metrics.tokenize=zh"], capsys)["02_reverse"]
    assert run_settings(compose_config("train", reverse[1:])).metrics.tokenize == "13a"
    reverse = plan([*call, "metrics=tokenized"], capsys)["02_reverse"]
    assert run_settings(compose_config("train", reverse[1:])).metrics.tokenize == "none"


def test_a_stage_reads_every_file_that_changes_what_it_writes(
    base: list[str], tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("terms.tsv", "short.npz", "own.model")]
    for file in files:
        file.touch()
    terms, shortlist, model = map(str, files)
    settings = {"translate": [f"glossary={terms}", f"decoding.shortlist={shortlist}"]}
    learned = [argument for argument in base if "vocab_size" not in argument]
    run = [*learned, "tokenizer=sentencepiece", f"tokenizer.file={model}"]
    planned = plan_recipe(Distill(text="distilled"), tmp_path / "r", run, settings)
    inputs = {stage.verb: {*stage.inputs} for stage in planned.stages}
    assert {*files[:2]} <= inputs["translate"]
    assert files[2] in inputs["train"]


@pytest.mark.thorough
def test_a_reverse_model_chooses_if_there_is_no_reference(
    base: list[str], tmp_path: Path, capsys: Capture
) -> None:
    more = tmp_path / "more.src"
    reverse = tmp_path / "reverse" / "checkpoints" / "best.ckpt"
    more.touch()
    write_checkpoint(tmp_path / "reverse", "tgt", "src", lora_rank=2)
    write_checkpoint(tmp_path / "forward", "src", "tgt")
    call = ["recipe=distill", *base, "output=r", "interpolation=2", f"monolingual={more}"]
    call += [f"reverse={tmp_path}/reverse", "select.batch_tokens=9", "clean=true"]
    models = f"clean.models=[{tmp_path}/forward,{tmp_path}/reverse]"
    stages = plan([*call, models, "metrics=tokenized"], capsys)
    selected = {"reference=r/01_text/train.tgt", "tokenize=none", "lowercase=false"}
    assert selected <= {*stages["05_select"]}
    nbest = "r/07_translate_monolingual/synthetic.tgt.jsonl"
    assert {"decoding.nbest=2", "format=json"} <= {*stages["07_translate_monolingual"]}
    selected = {f"reverse={reverse}", f"nbest={nbest}", f"source={more}", "batch_tokens=9"}
    assert selected <= {*stages["08_select_monolingual"]}
    pair = f"data.train=[{more},r/08_select_monolingual/synthetic.tgt]"
    assert pair in stages["09_clean_monolingual"]
    assert models.removeprefix("clean.") in stages["06_clean"]
    sampling = plan([*call, "translate.decoding=sampling"], capsys)
    assert {"decoding=sampling", "decoding.nbest=2"} <= {*sampling["04_translate"]}
    assert "decoding.beam_size" not in " ".join(sampling["04_translate"])
    for wrong, message in (
        (f"reverse={tmp_path}/forward", "translates src to tgt, and tgt to src is wanted"),
        (f"clean.models=[{tmp_path}/reverse,{tmp_path}/reverse]", "clean.models: "),
        ("interpolation=null", "reverse= chooses for interpolation=N and monolingual=FILE"),
        ("select.reverse=x", "select.reverse cannot be set"),
    ):
        assert message in refused([*call, wrong], capsys)
    # A stage reads the models that clean its text.
    recipe = Distill(text="distilled", teachers=[str(tmp_path / "forward")], clean=True)
    settings = {"clean": [models.removeprefix("clean.")]}
    planned = plan_recipe(recipe, tmp_path / "r", base, settings)
    [clean] = [stage for stage in planned.stages if stage.verb == "clean"]
    forward = tmp_path / "forward" / "checkpoints" / "best.ckpt"
    assert {forward, reverse} <= {*clean.inputs}


@pytest.mark.thorough
def test_a_teacher_is_a_server_or_files(base: list[str], tmp_path: Path, capsys: Capture) -> None:
    call = ["recipe=distill", *base, "output=r", "text=distilled"]
    server = ["teacher=http://localhost:1/v1", "interpolation=3", "clean=true"]
    stages = plan([*call, *server, "translate.model_name=m"], capsys)
    assert list(stages) == ["01_text", "02_translate", "03_clean", "04_student", "05_evaluate"]
    keys = {"candidates=3", "reference=r/01_text/train.tgt", "answers=r/answers.jsonl"}
    assert keys < {*stages["02_translate"]}
    assert "data.train=[r/03_clean/source.txt,r/03_clean/target.txt]" in stages["04_student"]
    for name in ("train.src", "train.tgt", "all.tsv", "all.tgt"):
        (tmp_path / name).write_text("a\tb\n" if name == "all.tsv" else "a\n")
    for name, files in {
        "": f"{tmp_path}/train.src,{tmp_path}/train.tgt",
        "/all.tsv": f"{tmp_path}/all.tsv",
        "/all.tgt": f"r/01_text/train.src,{tmp_path}/all.tgt",
    }.items():
        stages = plan([*call, f"teacher={tmp_path}{name}"], capsys)
        assert list(stages) == ["01_text", "02_student", "03_evaluate"]
        assert f"data.train=[{files}]" in stages["02_student"]
    files = [*call, f"teacher={tmp_path}", "interpolation=2"]
    assert "files translate no" in refused(files, capsys)


@pytest.mark.thorough
def test_back_translation_writes_sources_for_a_text_of_the_target(
    base: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_checkpoint(tmp_path / "run", "tgt", "src")
    (tmp_path / "mono").write_text("alpha\n")
    call = ["recipe=backtranslate", *base, "monolingual=~/mono", "output=r", "bitext_share=0.25"]
    stages = plan(call, capsys)
    assert list(stages) == [
        "01_text",
        "02_reverse",
        "03_evaluate_reverse",
        "04_translate",
        "05_forward",
        "06_evaluate",
    ]
    assert {"data.source=tgt", "data.target=src"} <= {*stages["02_reverse"]}
    corpora = argument(stages["05_forward"], "data.corpora")
    assert f"synthetic:{{train:[r/04_translate/synthetic.src,{tmp_path}/mono]" in corpora
    assert "tag:backtranslated" in corpora and "weight:0.75" in corpora
    # An existing reverse model needs no stage.
    existing = [*call, "reverse=~/run"]
    assert f"input={tmp_path}/mono" in plan(existing, capsys)["03_translate"]
    message = refused([*existing, "reverse.model.d_modle=64"], capsys)
    assert message.startswith("reverse.model.d_modle=64 does nothing: there is no stage reverse")


def test_a_reverse_model_reads_each_language_with_its_own_vocabulary(
    base: list[str], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "mono").write_text("alpha\n")
    call = ["recipe=backtranslate", *base, f"monolingual={tmp_path}/mono", "output=r"]
    call += ["model.tie_embeddings=decoder", "tokenizer=sentencepiece", "tokenizer.source=char"]
    call += ["tokenizer.file=[a.model,b.model]", 'tokenizer.features=";"']
    stages = plan(call, capsys)
    assert "tokenizer.file=[b.model,a.model]" in stages["02_reverse"]
    assert "tokenizer.file=[a.model,b.model]" in stages["05_forward"]
    config = run_settings(compose_config("train", stages["02_reverse"][1:]))
    assert config.tokenizer.algorithms == ("sentencepiece", "char")
    # Only a source has features.
    assert config.tokenizer.features is config.data.features is None
    stages = plan([*call, "reverse.tokenizer.file=[c.model,a.model]"], capsys)
    assert argument(stages["02_reverse"], "tokenizer.file") == "tokenizer.file=[c.model,a.model]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("recipe=distil", "recipe=distil names no recipe; choose recipe=distill or recipe=backtr"),
        ("recipe=distill", "recipe needs a value for output="),
        ("recipe=distill output=r teacherz=3", "unknown key teacherz (did you mean teach"),
        ("recipe=distill output=r teachers=0", "teachers=0 must be at least 1"),
        ("recipe=distill output=r teacher=a teachers=2", "teacher= and teachers= are both given"),
        ("recipe=distill output=r student.data.train=x", "student.data.train cannot be set"),
        ("recipe=distill output=r seed", "seed is not for a recipe, which takes KEY=VALUE"),
        ("recipe=distill output=r student.data.target_tag=true", "data.target_tag=true does not"),
        ("recipe=distill output=r evaluate.scores=[blue]", "evaluate: metric blue is unknown"),
        ("recipe=distill output=r evaluate.terms=gone", "gone: no such file"),
        ("recipe=backtranslate output=r monolingual=a.tsv", "monolingual=a.tsv must be plain"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(
    arguments: str,
    message: str,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(arguments.split(), capsys).startswith(message)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


def test_no_key_of_a_recipe_is_one_of_a_training() -> None:
    groups = {file.name for file in config_folder().iterdir() if file.is_dir()}
    training = (set(compose_config("train", [])) | groups) - {"recipe"}
    assert set(RECIPES) == {"distill", "backtranslate"}
    for recipe in RECIPES.values():
        keys = {"output", "dry_run", *(field.name for field in fields(recipe))}
        assert not (keys | set(recipe.kinds)) & training
