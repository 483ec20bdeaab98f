"""Plans: what each stage is called with, and what is refused before anything begins."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.helpers.runs.plans import plan, refused
from tests.unit.recipes.test_refusals import write_checkpoint
from transformer.cli.arguments import config_folder
from transformer.cli.config import compose_config, run_settings
from transformer.cli.recipe import RECIPES
from transformer.common.files import CONFIG_DIR
from transformer.common.own_code import TRUST
from transformer.data.corpora.resolve import corpus_configs
from transformer.recipes.plan import Stage
from transformer.settings.data import check_unused_keys


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


def test_ray_translates_to_the_file_that_the_student_reads(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    call = ["recipe=distill", *base, f"output={tmp_path}/r", "text=distilled"]
    stages = plan([*call, "translate.launch=ray"], capsys)
    assert {"launch=ray", "join=true"} <= {*stages["04_translate"]}
    assert stages["05_student"] == plan(call, capsys)["05_student"]
    assert "join" not in " ".join(plan(call, capsys)["04_translate"])
    assert "translate.join cannot be set" in refused([*call, "translate.join=true"], capsys)
    assert "student.launch=ray is not for a recipe" in refused(
        [*call, "student.launch=ray"], capsys
    )


@pytest.mark.thorough
def test_the_teachers_translate_further_text(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.src.gz"
    more.touch()
    call = ["recipe=distill", *base, "output=r", f"monolingual={more}", "tag=told"]
    stages = plan(call, capsys)
    assert f"input={more}" in stages["05_translate_monolingual"]
    [corpora] = (one for one in stages["06_student"] if one.startswith("data.corpora="))
    assert f"train:[{more},r/05_translate_monolingual/synthetic.tgt]" in corpora
    assert "original:" in corpora and corpora.count("tag:told") == 2
    # Without the original text, all is what teachers wrote: no tag tells them apart.
    [corpora] = (
        one
        for one in plan([*call, "text=distilled"], capsys)["06_student"]
        if one.startswith("data.corpora=")
    )
    assert "original:" not in corpora and "tag:" not in corpora
    told = refused([*call, "monolingual=more.tsv"], capsys)
    assert "monolingual=more.tsv must be plain text" in told


def test_a_synthetic_source_has_a_real_target(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.tgt"
    more.touch()
    stages = plan(["recipe=backtranslate", *base, "output=r", f"monolingual={more}"], capsys)
    names = list(stages)
    translated, forward = (one for one in names if "translate" in one), stages[names[-2]]
    assert f"input={more}" in stages[next(translated)]
    [corpora] = (one for one in forward if one.startswith("data.corpora="))
    synthetic = re.search(r"synthetic:\{[^}]*train:\[(.*?)\]", corpora)
    assert synthetic and synthetic[1].split(",")[1] == str(more)


def test_stages_have_own_arguments_and_the_last_counts(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["teacher.model=small", "student.model=small", "student.trainer.max_steps=99"]
    call = ["recipe=distill", *base, "model=base", "model.norm_order=pre", *own, "output=r"]
    stages = plan(call, capsys)
    for name in ("02_teacher_1", "05_student"):
        assert [one for one in stages[name] if one.startswith("model=")] == ["model=small"]
    assert "trainer.max_steps=30" in stages["02_teacher_1"]
    assert "trainer.max_steps=99" in stages["05_student"]
    assert "checkpoint=r/02_teacher_1/checkpoints/best.ckpt" in stages["04_translate"]
    own = ["evaluate_teachers.averaging=log_probability", "evaluate.decoding.beam_size=2"]
    stages = plan(["recipe=distill", *base, "seed=7", "teachers=2", "output=r", *own], capsys)
    seeds = [one for name in stages for one in stages[name] if one.startswith("seed=")]
    assert seeds == ["seed=7", "seed=8", "seed=7"] and "data.seed=8" in stages["03_teacher_2"]
    assert "averaging=log_probability" in stages["04_evaluate_teachers"]
    assert "decoding.beam_size=2" in stages["07_evaluate"]
    assert not any("averaging" in argument for argument in stages["07_evaluate"])


def test_stages_know_the_metric_of_the_user_and_repeated_sources(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["recipe=distill", *base, "metrics=json:dumps", "data.repeated_sources=true"]
    stages = plan([*call, "output=r"], capsys)
    for name in ("02_teacher_1", "05_student"):
        assert "metrics=json:dumps" in stages[name]
    for name in ("03_evaluate_teachers", "06_evaluate"):
        assert "custom='json:dumps'" in stages[name]
    assert "data.repeated_sources=true" in stages["01_text"]


def test_the_pocket_corpus_and_its_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    stages = plan(["recipe=distill", "experiment=pocket", "output=r", "seed=4"], capsys)
    text = ["text", "splits=[train,validation,test]", "output=r/01_text"]
    assert stages["01_text"] == text
    assert "experiment=pocket" in stages["05_student"] and "seed=4" in stages["05_student"]
    assert "data.corpus=files" in stages["05_student"]


OWN_CODE = """
from pytorch_lightning import Callback
from torch import nn

class Watch(Callback):
    pass

class Thin(nn.Linear):
    def __init__(self, d_model, ffn_dim, *, activation, dropout):
        super().__init__(d_model, d_model)
"""

MINE = """# @package _global_
defaults:
  - override /data: {data}
  - override /tokenizer: words
  - override /metrics: exact
  - _self_
data: {{{text}}}
model: {{feed_forward: "own_code:Thin", tie_embeddings: none}}
callbacks: {{own: ["own_code:Watch"], patience: 3}}
"""


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("g2p", "root: {root}, lang: dut"),
        pytest.param("tanaka_enja", "root: {root}", marks=pytest.mark.thorough),
        pytest.param(
            "folder",
            "root: {root}, source: en, target: ja, test_size: 0",
            marks=pytest.mark.thorough,
        ),
    ],
)
@pytest.mark.parametrize("recipe", ["distill", "backtranslate"])
def test_every_stage_of_any_experiment_is_checked_before_the_first(
    recipe: str,
    data: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for split in ("train", "dev", "test"):
        for name in (f"{split}.en", f"{split}.ja", f"dut_{split}.tsv"):
            (tmp_path / name).write_text("a\tb\n")
    (tmp_path / "own_code.py").write_text(OWN_CODE)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    file = tmp_path / "conf" / "experiment" / "mine.yaml"
    file.write_text(MINE.format(data=data, text=text.format(root=tmp_path)))
    monkeypatch.setenv(CONFIG_DIR, str(tmp_path / "conf"))
    monkeypatch.delenv(TRUST, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    call = [f"recipe={recipe}", "experiment=mine", "output=r"]
    call += [f"monolingual={tmp_path}/dev.ja"] if recipe == "backtranslate" else []
    stages = plan(call, capsys)
    # Each call begins with its verb and --config-dir FOLDER.
    trained = [arguments[3:] for arguments in stages.values() if arguments[0] == "train"]
    assert len(trained) == 2
    for arguments in trained:
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


def test_a_root_that_the_first_stage_does_not_read_is_refused(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(["recipe=distill", *base, "data.root=x", "output=r"], capsys)
    assert told.startswith("data.root is not read with data.corpus=files")


@pytest.mark.thorough
def test_a_folder_and_a_published_corpus_reach_each_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train.de", "train.en.gz", "valid.de", "valid.en"):
        (tmp_path / name).touch()
    call = ["recipe=distill", "data=folder", "data.source=en", "data.target=de"]
    stages = plan([*call, f"data.root={tmp_path}", "data.test_size=0", "output=r"], capsys)
    assert {"data.corpus=folder", f"data.root={tmp_path}"} <= set(stages["01_text"])
    assert "data.train=[r/01_text/train.en,r/01_text/train.de]" in stages["02_teacher_1"]
    for name in ("02_teacher_1", "05_student"):
        assert not any(one.startswith("data.root") for one in stages[name])
    # A published corpus keeps its name in each stage, which brings its metrics.
    for split in ("train", "dev", "test"):
        for language in ("en", "ja"):
            (tmp_path / f"{split}.{language}").touch()
    call = ["recipe=distill", "data=tanaka_enja", f"data.root={tmp_path}", "output=r"]
    stages = plan(call, capsys)
    assert f"data.root={tmp_path}" in stages["01_text"]
    assert "data=tanaka_enja" in stages["05_student"]
    (tmp_path / "dev.ja").unlink()
    assert "has no dev.ja" in refused(call, capsys)


@pytest.mark.thorough
def test_the_users_search_and_metrics_count_with_interpolation(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["recipe=distill", *base, "interpolation=2", "metrics=tokenized"]
    call.append("output=my out,dir=1")
    stages = plan([*call, "translate.decoding.beam_size=7"], capsys)
    assert {"tokenize=none", "lowercase=false"} <= set(stages["05_select"])
    wide = stages["04_translate"]
    assert {"decoding.beam_size=7", "decoding.nbest=2", "format=json"} <= set(wide)
    drawn = plan([*call, "translate.decoding=sampling"], capsys)["04_translate"]
    assert {"decoding=sampling", "decoding.nbest=2"} <= set(drawn)
    assert "output=my out,dir=1/04_translate/train.tgt.jsonl" not in drawn
    assert "output='my out,dir=1/04_translate/train.tgt.jsonl'" in drawn
    assert not any(one.startswith("decoding.beam_size") for one in drawn)


@pytest.mark.thorough
def test_a_reverse_model_chooses_where_there_is_no_reference(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more, reverse = tmp_path / "more.src", tmp_path / "reverse" / "checkpoints" / "best.ckpt"
    more.touch()
    write_checkpoint(tmp_path / "reverse", "tgt", "src", lora_rank=2)
    write_checkpoint(tmp_path / "forward", "src", "tgt")
    call = ["recipe=distill", *base, "output=r", "interpolation=2", f"monolingual={more}"]
    call += [f"reverse={tmp_path}/reverse", "select.batch_tokens=9", "clean=true"]
    models = f"clean.models=[{tmp_path}/forward,{tmp_path}/reverse]"
    stages = plan([*call, models], capsys)
    assert "reference=r/01_text/train.tgt" in stages["05_select"]
    nbest = "r/07_translate_monolingual/synthetic.tgt.jsonl"
    assert {"decoding.nbest=2", "format=json"} <= {*stages["07_translate_monolingual"]}
    chosen = {f"reverse={reverse}", f"nbest={nbest}", f"source={more}", "batch_tokens=9"}
    assert chosen <= {*stages["08_select_monolingual"]}
    assert (
        f"data.train=[{more},r/08_select_monolingual/synthetic.tgt]"
        in stages["09_clean_monolingual"]
    )
    assert models.removeprefix("clean.") in stages["06_clean"]
    asked = ["teacher=http://localhost:1/v1", "translate.model_name=m"]
    stages = plan([*(one for one in call if not one.startswith("select")), *asked], capsys)
    mono = stages["04_translate_monolingual"]
    assert {f"reverse={reverse}", "candidates=2"} <= {*mono}
    assert not any(one.startswith(("reverse", "tag")) for one in stages["02_translate"])
    for wrong, says in (
        (f"reverse={tmp_path}/forward", "translates src to tgt, and tgt to src is wanted"),
        (f"clean.models=[{tmp_path}/reverse]", "clean: models=["),
        ("clean.keep=0.8", "clean: keep=0.8 is of the pairs that models= rank"),
        (f"clean.models=[{tmp_path}/reverse,{tmp_path}/reverse]", "clean.models: "),
        ("interpolation=null", "reverse= chooses for interpolation=N and monolingual=FILE"),
        ("select.reverse=x", "select.reverse cannot be set"),
    ):
        assert says in refused([*call, wrong], capsys)


def test_files_in_the_folder_of_a_stage_do_not_change_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "01_train", "train", ("model=base",), {}, ())
    before = stage.digest
    (stage.folder / "tensorboard").mkdir(parents=True)
    (stage.folder / "tensorboard" / "hparams.yaml").write_text("{}")
    assert stage.digest == before


def test_no_key_of_a_recipe_is_one_of_a_training() -> None:
    groups = {file.name for file in config_folder().iterdir() if file.is_dir()}
    training = (set(compose_config("train", [])) | groups) - {"recipe"}
    assert set(RECIPES) == {"distill", "backtranslate"}
    for recipe in RECIPES.values():
        keys = {"output", "dry_run", *(field.name for field in fields(recipe))}
        assert not (keys | set(recipe.kinds)) & training
