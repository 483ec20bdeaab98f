"""The snippets of docs/python.md run, on a small model."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs import PROJECT, SMALL, corpus_overrides
from tests.system.test_single_stacks import trained
from tests.unit.test_docs import SNIPPET

OVERRIDES = '["data=pocket", "debug=quick"]'


def test_the_snippets_run(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (PROJECT / "docs" / "python.md").read_text("utf-8")
    assert text.count(OVERRIDES) == 1
    (tmp_path / "RUN").symlink_to(home / "run")
    trained("pocket_tagging", tmp_path, "trainer.max_steps=2", run="TAGGER")
    (tmp_path / "in.en").write_text("The dog sleeps.\n\nA man.\n")
    monkeypatch.chdir(tmp_path)
    small = [*corpus_overrides(tmp_path), *SMALL, "debug=quick", "decoding=greedy"]
    page: dict[str, Any] = {"__name__": "page"}
    printed = []
    for snippet in SNIPPET.finditer(text):
        line = text.count("\n", 0, snippet.start("code"))
        code = snippet["code"].replace(OVERRIDES, str(small))
        exec(compile("\n" * line + code, "docs/python.md", "exec"), page)
        # An untrained model says control characters, too.
        printed.append(capsys.readouterr().out.removesuffix("\n").split("\n"))
    _, nbest, asked, links, stream, ensemble, scores, tags, metrics, alone = printed
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
    assert alone == ["torch.Size([2, 5, 310])"]
