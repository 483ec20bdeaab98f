"""The snippets of docs/python.md run, on a small model."""

from pathlib import Path

import pytest

from tests.helpers.runs import PROJECT, SMALL, corpus_overrides
from tests.unit.test_docs import SNIPPET


def test_the_snippets_run(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (PROJECT / "docs" / "python.md").read_text("utf-8")
    (tmp_path / "RUN").symlink_to(home / "run")
    (tmp_path / "in.en").write_text("The dog sleeps.\n\nA man.\n")
    monkeypatch.chdir(tmp_path)
    small = [*corpus_overrides(tmp_path), *SMALL, "debug=quick", "decoding=greedy"]
    namespace: dict[str, object] = {"__name__": "page"}
    for snippet in SNIPPET.finditer(text):
        line = text.count("\n", 0, snippet.start("code"))
        code = snippet["code"].replace('["data=pocket", "debug=quick"]', str(small))
        exec(compile("\n" * line + code, "docs/python.md", "exec"), namespace)
    printed = capsys.readouterr().out.splitlines()
    assert "torch.Size([2, 5, 310])" in printed
    assert any(line.startswith("BLEU ") and "tok:13a" in line for line in printed)
    assert (tmp_path / "runs" / "mine" / "test.json").is_file()
