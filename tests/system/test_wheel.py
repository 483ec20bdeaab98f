"""A wheel carries conf/ and the pocket corpus, so that the command works without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.helpers.runs import PROJECT


def test_the_verbs_work_from_a_wheel_alone(tmp_path: Path) -> None:
    pip = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, *pip, "--wheel-dir", str(tmp_path), str(PROJECT)], check=True, timeout=120
    )
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "beam_size" in run("-m", "transformer", "train", "--cfg", "job")
    run("-m", "transformer", "text", "output=text", "splits=[test_novel]")
    assert len((tmp_path / "text" / "test_novel.de").read_text("utf-8").splitlines()) == 500
    tagged = "from transformer.data.corpora.pocket import pocket_text as t, read_pocket_tags as r"
    assert not (site / "scripts").exists()
    page = "from transformer.report.attention_page import attention_page as p; print(len(p(v)))"
    view = "from transformer.evaluation.attention.view import AttentionView as V"
    made = f"{view}; v = V('', '', False, '', '', '', 0, ()); {page}"
    sentences = f"{tagged}; print(len(list(r(t('en')['test']))))"
    files = "from transformer.serving.interfaces.page import page_routes; page_routes()"
    characters, count = run("-c", f"{made}; {sentences}; {files}").split()
    assert int(characters) > 10_000
    assert int(count) == 1000
