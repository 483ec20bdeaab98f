"""Requests in JSON lines, and the constraints that a translation violates."""

import json
import re

import pytest

from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, parse_tags
from transformer.decoding.constraints.request import Constraints, Request


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"mist": []}, "f:3: request.mist is not a setting of request (did you mean must?)"),
        ({"must": "Haus"}, "f:3: request.must='Haus' must be a list"),
        ({"never": ["a", 1]}, "f:3: request.never=1 must be a text"),
        ({"prefix": None}, "f:3: request.prefix=null must be a text"),
        ({"text": 1}, "f:3: request.text=1 must be a text"),
        ({"to": 3}, "f:3: request.to=3 must be a text or null"),
        ({"must": [" "]}, "f:3: a phrase of must is empty"),
        ({"must": ["der Hund"], "never": ["der"]}, "f:3: must 'der Hund' contains 'der'"),
        ({"prefix": "In der", "never": ["der"]}, "f:3: prefix 'In der' contains 'der'"),
    ],
)
def test_wrong_request_is_one_line(values: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        Request.parse(json.dumps({"text": "a"} | values), "f:3")
    lines = ["", "ein Hund", '"Hund"', "[1]", "{}", "[" * 9**5, "9" * 9**5]
    for line in (*lines, '{"text": "\\ud800"}', '{"text": "a", "must": ["\\udfff"]}'):
        with pytest.raises(InputError, match=r'^f:7: .*write {"text": "…"}, one object a line$'):
            Request.parse(line, "f:7")


def test_request_has_constraints_and_tags() -> None:
    assert Request.parse('{"text": "a dog"}', "f:1") == Request("a dog", None)
    request = Request.parse('{"never": ["x"], "text": "", "prefix": "y", "must": ["z"]}', "f:1")
    assert request == Request("", Constraints("y", ("z",), ("x",)))
    text = Request.parse('{"text": "a dog", "to": "de", "tag": "web"}', "f:1").text
    assert text == "a dog" and parse_tags(text) == SourceTags("de", "web")
    assert parse_tags(Request.parse('{"text": "a dog", "to": null}', "f:1").text) == SourceTags()


def test_unmet_constraints() -> None:
    constraints = Constraints("Der", ("Hund", "läuft"), ("Katze",))
    assert constraints.unmet("Der Hund läuft.") == ()
    assert constraints.unmet("Derselbe Hund läuft.") == ()
    assert constraints.unmet("Katze, hundert Hunde") == (
        "prefix: Der",
        "must: Hund",
        "must: läuft",
        "never: Katze",
    )
    assert Constraints("Der ").unmet("Derselbe") == ("prefix: Der ",)
    assert Constraints("Der ").unmet("Der") == ()
