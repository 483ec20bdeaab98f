"""``attention`` before any model is loaded: sentences among the arguments."""

from pathlib import Path

import pytest

from tests.helpers.runs.tuning_runs import write_run
from transformer.__main__ import main
from transformer.cli.config.compose import compose_config
from transformer.cli.evaluate.attention import _literal


@pytest.mark.parametrize("sentence", ["A man, (red)?", "${oc.env:HOME}", "a=b", "[x", "null", ""])
def test_a_sentence_is_taken_as_it_is(sentence: str) -> None:
    call = ["checkpoint=x", f"text={sentence}", "target=null", "png=false"]
    keys, sentences = _literal(call, ("text", "target"))
    assert sentences == {"text": sentence}
    config = compose_config("attention", keys)
    assert (config.text, config.target, config.png) == ("given", None, False)


def test_a_sentence_is_needed_and_is_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attention", "checkpoint=x"]) == 2
    assert capsys.readouterr() == ("", "error: attention needs a value for text=\n")
    assert _literal(["text=a\udcff"], ("text",)) == (["text=given"], {"text": "a\ufffd"})


def test_without_matplotlib_a_note_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("transformer.cli.evaluate.attention.find_spec", lambda name: None)
    call = [f"checkpoint={write_run(tmp_path)}", "text=a dog", "sentences=0"]
    assert main(["attention", *call, f"output={tmp_path}/o"]) == 0
    written = {file.name for file in (tmp_path / "o").iterdir()}
    assert written == {"attention.html", "attention.json"}
    assert "attention.png needs matplotlib; pip install -e '.[plot]'" in capsys.readouterr().err
