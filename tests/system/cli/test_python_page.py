"""The snippets of docs/python.md run, on a small model."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.text import write_parallel
from tests.helpers.runs.runs import PROJECT
from tests.system.training.test_single_stacks import trained
from tests.unit.test_docs import SNIPPET

pytestmark = pytest.mark.thorough


def write_page_text(folder: Path) -> None:
    """The files that the page names."""
    for name, count in (("train", 2000), ("valid", 40)):
        for path in write_parallel(folder, name, count, count, list):
            Path(path).rename(Path(path).with_suffix(".en" if path.endswith(".src") else ".de"))


def test_the_snippets_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (PROJECT / "docs" / "python.md").read_text("utf-8")
    (tmp_path / "RUN").symlink_to(home / "run")
    trained("pocket_tagging", tmp_path, "trainer.max_steps=2", run="TAGGER")
    (tmp_path / "in.en").write_text("The dog sleeps.\n\nA man.\n")
    write_page_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {"__name__": "page"}
    printed = []
    for snippet in SNIPPET.finditer(text):
        line = text.count("\n", 0, snippet.start("code"))
        exec(compile("\n" * line + snippet["code"], "docs/python.md", "exec"), page)
        # An untrained model says control characters, too.
        printed.append(capsys.readouterr().out.removesuffix("\n").split("\n"))
    *translated, scores, tags, metrics, _, plain, compared, program, alone, _ = printed
    _, nbest, asked, links, stream, ensemble = translated
    assert len(nbest) == 3
    assert len(asked) == 3
    assert asked[-1].endswith(" None")
    assert links[0].startswith("[")
    assert links[1].startswith("torch.Size([")
    assert len(stream) == 3
    assert stream[1] == ""
    assert len(ensemble) == 1
    assert scores[1].startswith("BLEU ")
    assert "tok:13a" in scores[1]
    assert tags[0].startswith("('The', 'dog', 'sleeps', '.') (")
    assert float(metrics[-1]) >= 0
    assert (tmp_path / "runs" / "mine" / "test.json").is_file()
    assert re.match(r"tensor\([\d.]+\) SearchConfig\(", plain[-1])
    assert re.match(r"BLEU [\d.]+ nrefs:1\|case:mixed", compared[0])
    assert [line.split()[0] for line in compared[-2:]] == ["BLEU", "chrF2"]
    folder, answer = program
    assert (tmp_path / folder / "model.safetensors").is_file()
    assert answer == "dict_keys(['translatedText'])"
    assert alone == ["torch.Size([2, 5, 100])"]
