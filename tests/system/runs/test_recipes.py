"""Recipes end to end at tiny size: stopped, resumed, changed, and what they report."""

import gzip
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.runs.faults import SignalAt
from tests.helpers.runs.outcomes import said
from tests.helpers.runs.processes import FORKS, exit_code, prepare, tiny_overrides
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE
from transformer.recipes import runner
from transformer.recipes.plan import Stage
from transformer.settings.corpora import CHECKS

pytestmark = pytest.mark.thorough

BRIEF = ["trainer.max_steps=6", "trainer.val_check_interval=6"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    tiny_overrides(folder)
    return folder


@pytest.fixture
def base(corpus: Path) -> list[str]:
    return [*tiny_overrides(corpus), *BRIEF]


def recipe(
    arguments: Sequence[str], home: Path, *, fault_in: str = "", fault: Callable[[], None] = list
) -> int:
    """Run ``transformer recipe=…`` in a folder; what it says is added to the file ``said`` there.

    Args:
        arguments: Of the call.
        home: The folder.
        fault_in: A stage that the fault is planted in.
        fault: Where it kills the stage, the recipe is killed as well.
    """
    process = FORKS.Process(
        target=_recipe, args=(list(arguments), home, fault_in, fault), daemon=False
    )
    process.start()
    return exit_code(process)


def _recipe(arguments: list[str], home: Path, fault_in: str, fault: Callable[[], None]) -> None:
    def forked(stage: Stage) -> tuple[int, int | None]:
        """In place of ``call``: no time is lost with imports."""
        child = os.fork()
        if not child:
            sys.argv = ["transformer", stage.verb, *stage.arguments]
            if stage.name == fault_in:
                fault()
            code = 1
            try:
                code = main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == -signal.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)
        return code, None

    prepare(home)
    os.chdir(home)
    runner.call = forked
    sys.argv = ["transformer", *arguments]
    sys.exit(main())


def config(run: Path) -> Any:
    """The config of a training run."""
    return OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))


def report(home: Path) -> dict[str, Any]:
    """What the last call has printed, with signatures."""
    values: dict[str, Any] = json.loads(said(home)[said(home).rindex("\n{\n") :])
    for scores in values["scores"].values():
        assert all("version:" in score["signature"] for score in scores)
    return values


def assert_marked(folder: Path, names: list[str]) -> None:
    """There are these stages, each done and marked with what it was made of."""
    folders = (path.name for path in folder.iterdir() if path.is_dir())
    assert sorted(name for name in folders if ".old-" not in name) == names
    for name in names:
        marker = json.loads((folder / f"{name}.json").read_text())
        assert marker["done"] and marker["command"].startswith("python -m transformer ")
        for file, digest in marker["sha256"].items():
            if file != "command":
                assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file


def state(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """When each file was written, and what it holds."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_distill_is_killed_and_resumes(base: list[str], tmp_path: Path) -> None:
    more = tmp_path / "more.src"
    more.write_text("alpha beta\nbeta\n", encoding="utf-8")
    call = ["recipe=distill", *base, "output=d", "teachers=2", "interpolation=2", "tag=distilled"]
    call.append(f"monolingual={more}")
    fault = SignalAt("on_train_batch_end", 4, signal.SIGKILL)
    assert recipe(call, tmp_path, fault_in="03_teacher_2", fault=fault) == -signal.SIGKILL
    folder = tmp_path / "d"
    before = {name: state(folder / name) for name in ("01_text", "02_teacher_1")}
    assert recipe(call, tmp_path) == 0, said(tmp_path)
    assert {name: state(folder / name) for name in before} == before
    assert "03_teacher_2: resumes: " in said(tmp_path)
    assert "resuming from d/03_teacher_2/checkpoints/last.ckpt" in said(tmp_path).replace(
        f"{tmp_path}/", ""
    )
    teachers = ["02_teacher_1", "03_teacher_2", "04_evaluate_teachers"]
    translations = ["05_translate", "06_select", "07_translate_monolingual"]
    assert_marked(folder, ["01_text", *teachers, *translations, "08_student", "09_evaluate"])
    assert [config(folder / name)["seed"] for name in teachers[:2]] == [1, 2]
    assert set(report(tmp_path)["scores"]) == {"test_original", "validation"}
    assert report(tmp_path)["checkpoint"] == "d/08_student/checkpoints/best.ckpt"
    distilled = (folder / "06_select" / "train.tgt").read_text().split("\n")
    nbest = (folder / "05_translate" / "train.tgt.jsonl").read_text().splitlines()
    assert len(distilled) - 1 == len(nbest) == 120
    for line, row in zip(distilled, map(json.loads, nbest), strict=False):
        assert line in [candidate["text"] for candidate in row["nbest"]]
    corpora = config(folder / "08_student")["data"]["corpora"]
    assert list(corpora) == ["original", "distilled", "monolingual"]
    synthetic = "07_translate_monolingual/synthetic.tgt"
    assert corpora["monolingual"]["train"] == [str(more), f"d/{synthetic}"]
    assert len((folder / synthetic).read_text().split("\n")) == 3
    payload = torch.load(folder / "08_student" / "checkpoints" / "best.ckpt", weights_only=True)
    assert payload[PORTABLE]["tokenizer"]["tags"]["corpora"] == ("distilled",)
    assert "Traceback" not in said(tmp_path)


def test_backtranslate_makes_again_what_changes(
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
    names = ["01_text", "02_reverse", "03_evaluate_reverse"]
    last = ["04_translate", "05_forward", "06_evaluate"]
    assert recipe(call, tmp_path) == 0, said(tmp_path)
    folder = tmp_path / "b"
    assert_marked(folder, [*names, *last])
    reverse, forward = (config(folder / name)["data"] for name in ("02_reverse", "05_forward"))
    assert (reverse["source"], reverse["target"]) == ("tgt", "src")
    synthetic = forward["corpora"]["synthetic"]
    assert synthetic["train"] == ["b/04_translate/synthetic.src", str(monolingual)]
    assert (synthetic["tag"], synthetic["weight"]) == ("backtranslated", 0.75)
    assert len((folder / "04_translate" / "synthetic.src").read_text().split("\n")) == 121

    before = {name: state(folder / name) for name in (*names, *last)}
    assert recipe([*call, "translate.decoding.beam_size=0"], tmp_path) == 2
    assert "error: translate: decoding.beam_size=0 must be from 1 to 10000" in said(tmp_path)
    assert {name: state(folder / name) for name in before} == before
    monolingual.write_bytes(gzip.compress(text.replace("beta", "eta").encode()))
    assert recipe(call, tmp_path) == 0, said(tmp_path)
    assert f"04_translate: starts again, {monolingual} has changed" in said(tmp_path)
    assert_marked(folder, [*names, *last])
    assert [name for name in before if state(folder / name) != before[name]] == last
    for name in last:
        kept = state(folder / f"{name}.old-1").values()
        assert sorted(kept) == sorted(before[name].values())
    assert_they_distil(base, tmp_path)


def assert_they_distil(base: list[str], tmp_path: Path) -> None:
    """Both models choose where there is no reference, and judge what the forward one writes."""
    more = tmp_path / "more.src"
    more.write_text("alpha beta\nbeta\ngamma alpha\nbeta alpha\n", encoding="utf-8")
    call = ["recipe=distill", *base, "output=d", "teachers=[b/05_forward]", "reverse=b/02_reverse"]
    call += ["interpolation=2", f"monolingual={more}", "clean=true", "clean.keep=0.5"]
    call += ["clean.models=[b/05_forward,b/02_reverse]"]
    # Models of six updates write no good pairs.
    call += [f"clean.filters.{name}=false" for name in CHECKS if not name.startswith("several")]
    assert recipe(call, tmp_path) == 0, said(tmp_path)
    chosen = (tmp_path / "d/07_select_monolingual/synthetic.tgt").read_text().split("\n")[:-1]
    nbest = (tmp_path / "d/06_translate_monolingual/synthetic.tgt.jsonl").read_text().splitlines()
    for line, row in zip(chosen, map(json.loads, nbest), strict=True):
        assert line in [candidate["text"] for candidate in row["nbest"]]
    for stage, half in (("05_clean", 60), ("08_clean_monolingual", 2)):
        [rejected] = (tmp_path / "d" / stage).glob("*.rejected.jsonl")
        rows = [json.loads(row) for row in rejected.read_text().splitlines()]
        assert [row["faults"] for row in rows] == [["cross_entropy"]] * half


def test_a_stopped_recipe_goes_on_in_a_moved_folder(base: list[str], tmp_path: Path) -> None:
    call = ["recipe=distill", *base, "output=x", "text=distilled"]
    assert recipe([*call, "student.model.num_heads=3"], tmp_path) == 2
    assert said(tmp_path).strip() == (
        "error: model.d_model=16 is not a multiple of model.num_heads=3; choose a multiple, or set "
        "model.head_dim"
    )
    assert not (tmp_path / "x").exists()

    fault = SignalAt("on_train_batch_end", 3, signal.SIGTERM)
    assert recipe(call, tmp_path, fault_in="05_student", fault=fault) == 143
    assert "05_student has ended with exit code 143; the same command resumes" in said(tmp_path)
    # The folder may be moved, and called by another name, at any time.
    folder = (tmp_path / "x").rename(tmp_path / "y")
    assert recipe([*call, "output=./y"], tmp_path) == 0, said(tmp_path)
    assert "05_student: resumes" in said(tmp_path)
    before = ["01_text", "02_teacher_1", "03_evaluate_teachers", "04_translate"]
    for name in before:
        assert said(tmp_path).count(f"{name}: done before") == 1
    assert_marked(folder, [*before, "05_student", "06_evaluate"])
    assert set(report(tmp_path)["scores"]) == {"test", "validation"}
    last = torch.load(folder / "05_student" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 6
