"""What a line may ask of a translation, and what is told of one that does not keep to it."""

import re

import pytest

from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, parse_tags
from transformer.decoding.constraints.request import Constraints, Request


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"most": []}, "f:3: unknown key 'most'; choose text, to, tag, prefix, must or never"),
        ({"must": "Haus"}, "f:3: \"must\" must be a list of strings, not 'Haus'"),
        ({"never": ["a", 1]}, 'f:3: "never" must be a list of strings'),
        ({"prefix": None}, 'f:3: "prefix" must be a string'),
        ({"must": [" "]}, "f:3: a phrase of must is empty"),
        ({"must": ["der Hund"], "never": ["der"]}, "f:3: must 'der Hund' has 'der'"),
        ({"prefix": "In der", "never": ["der"]}, "f:3: the prefix 'In der' has 'der'"),
    ],
)
def test_what_cannot_be_asked_is_one_line(values: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        Constraints.from_json(values, "f:3")


@pytest.mark.parametrize(
    "line", ["", "ein Hund", '"Hund"', "[1]", "{}", '{"text": 1}', "[" * 9**5, "9" * 9**5]
)
def test_what_is_no_request_is_one_line(line: str) -> None:
    with pytest.raises(InputError, match=r'^f:7: .*write {"text": "…"}, one object a line$'):
        Request.parse(line, "f:7")


def test_a_request_has_constraints_where_it_has_their_keys() -> None:
    assert Request.parse('{"text": "a dog"}', "f:1") == Request("a dog", None)
    asked = Request.parse('{"never": ["x"], "text": "", "prefix": "y", "must": ["z"]}', "f:1")
    assert asked == Request("", Constraints("y", ("z",), ("x",)))


def test_what_is_unmet_is_told() -> None:
    asked = Constraints("Der", ("Hund", "läuft"), ("Katze",))
    assert asked.unmet("Der Hund läuft.") == ()
    assert asked.unmet("Derselbe Hund läuft.") == ()
    assert asked.unmet("Katze, hundert Hunde") == (
        "prefix: Der",
        "must: Hund",
        "must: läuft",
        "never: Katze",
    )
    assert Constraints("Der ").unmet("Derselbe") == ("prefix: Der ",)
    assert Constraints("Der ").unmet("Der") == ()


@pytest.mark.parametrize("line", ['{"text": "\\ud800"}', '{"text": "a", "must": ["\\udfff"]}'])
def test_half_a_character_is_no_text(line: str) -> None:
    with pytest.raises(InputError, match="in:7: not JSON"):
        Request.parse(line, "in:7")


def test_a_text_has_the_tags_that_the_line_names() -> None:
    text = Request.parse('{"text": "a dog", "to": "de", "tag": "web"}', "f:1").text
    assert text == "a dog" and parse_tags(text) == SourceTags("de", "web")
    assert parse_tags(Request.parse('{"text": "a dog", "to": null}', "f:1").text) == SourceTags()
    with pytest.raises(InputError, match='f:2: "to" must be a string, not 3'):
        Request.parse('{"text": "a dog", "to": 3}', "f:2")
