"""``attention`` before any model is loaded: sentences among the arguments."""

import pytest

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
