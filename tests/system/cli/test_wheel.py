"""A wheel in a fresh environment: no checkout, own code and settings beside the user's text."""

import os
import re
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.helpers.runs.runs import PROJECT
from tests.system.cli.test_python_page import write_page_text

pytestmark = pytest.mark.thorough


class Run:
    """Runs a command of an environment, in a folder of the user; returns what it prints."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.environment, self.folder = environment, folder

    def __call__(self, *arguments: str, program: str = "transformer", **variables: str) -> str:
        done = subprocess.run(
            [self.environment / "bin" / program, *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of an environment that has the wheel, in an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    quick = {"check": True, "timeout": 120}
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(PROJECT)],
        **quick,  # type: ignore[call-overload]
    )
    environment, (wheel,) = folder / "env", folder.glob("*.whl")
    venv.create(environment, symlinks=True)
    # The packages of this environment, but not the checkout that it has as an editable install.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    python = environment / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], **quick)  # type: ignore[call-overload]
    (work := folder / "work").mkdir()
    return Run(environment, work)


def test_the_verbs_work_without_the_checkout(run: Run) -> None:
    package = Path(
        run("-c", "import transformer as t; print(t.__file__)", program="python").strip()
    )
    assert "site-packages" in package.parts and not package.is_relative_to(PROJECT)
    assert not (package.parents[1] / "scripts").exists()
    assert "beam_size" in run("train", "--cfg", "job")
    run("text", "output=text", "splits=[test_novel]")
    assert len((run.folder / "text" / "test_novel.de").read_text("utf-8").splitlines()) == 500
    code = """
from transformer.data.corpora.resolve import pocket_text
from transformer.data.datamodules.tagging import read_pocket_tags
from transformer.serving.http_server import page_routes
page_routes()
print(len(list(read_pocket_tags(pocket_text("en")["test"]))))
"""
    assert run("-c", code, program="python") == "1000\n"


def test_a_user_trains_with_own_code_and_settings(run: Run) -> None:
    """As docs/python.md says."""
    page = (PROJECT / "docs" / "python.md").read_text("utf-8").partition("## Your own code")[2]
    work = run.folder
    write_page_text(work)
    blocks = dict(re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S))
    (work / "mine.py").write_text(blocks["python"])
    (experiment := work / "settings" / "experiment").mkdir(parents=True)
    (experiment / "small_files.yaml").write_text(blocks["yaml"])
    command = blocks[""].replace("\\\n", " ").replace("'", "").split()
    assert command[0] == "transformer"
    log = run(*command[1:], "callbacks.samples=0")
    assert "validated after update 4" in log
    assert "same_length" in (work / "runs" / "own" / "test.json").read_text()
    assert "FocalTask" in (work / "runs" / "own" / "config.yaml").read_text()
    assert "same_length" in run("evaluate", "checkpoint=runs/own", "trust=true")
    code = "from transformer import Translator as T; print(T.load('runs/own').translate(['a'])[0])"
    assert "Translation(" in run("-c", code, program="python", TRANSFORMER_TRUST="true")
