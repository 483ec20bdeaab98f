"""``attention`` before any model is loaded: sentences among the arguments."""

from pathlib import Path

import pytest

from tests.helpers.runs.tuning_runs import write_run
from transformer.__main__ import main
from transformer.cli.config.compose import compose_config
from transformer.cli.evaluate.attention import _literal


@pytest.mark.parametrize(
    "sentence",
    [
        "A man, who sleeps.",
        "Is it (red)?",
        "${oc.env:HOME}",
        "a=b",
        "[x",
        '"q" \'r',
        "null",
        "",
        "~",
    ],
)
def test_a_sentence_is_taken_as_it_is(sentence: str) -> None:
    call = ["checkpoint=x", f"text={sentence}", "target=null", "png=false"]
    keys, sentences = _literal(call, ("text", "target"))
    assert sentences == {"text": sentence}
    config = compose_config("attention", keys)
    assert (config.text, config.target, config.png) == ("given", None, False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["checkpoint=x"], "text= is missing"),
        (["checkpoint=x", "text=\udcff"], "text= is not UTF-8"),
        (
            ["checkpoint=x", "text=a", "sentence=3"],
            "unknown key sentence (did you mean sentences?)",
        ),
    ],
)
def test_a_wrong_call_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attention", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: {says}")
    assert said.err.count("\n") == 1


def test_without_matplotlib_a_note_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("transformer.cli.evaluate.attention.find_spec", lambda name: None)
    call = [
        f"checkpoint={write_run(tmp_path)}",
        "text=a dog",
        "sentences=0",
        f"output={tmp_path}/o",
    ]
    assert main(["attention", *call]) == 0
    assert {file.name for file in (tmp_path / "o").iterdir()} == {
        "attention.html",
        "attention.json",
    }
    assert "attention.png needs matplotlib; pip install -e '.[plot]'" in capsys.readouterr().err
