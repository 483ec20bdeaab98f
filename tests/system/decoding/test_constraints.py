"""Constraints as a user gives them: JSON lines in, what is unmet out; term accuracy."""

import json
from pathlib import Path

from tests.helpers.runs.runs import verb

JSON = ("translate", "checkpoint=run", "input_format=json")


def lines(*requests: dict[str, object]) -> bytes:
    return "".join(json.dumps(request) + "\n" for request in requests).encode()


def test_json_lines_in_and_out(home: Path) -> None:
    text = "alpha beta gamma"
    code, stdout, stderr = verb(*JSON, "format=json", home=home, stdin=lines({"text": text}))
    assert code == 0, stderr
    plain = json.loads(stdout)
    said = plain["text"].split()[0]
    requests = lines(
        {"text": text},
        {"text": text, "prefix": "delta", "must": ["omega psi"], "never": [said]},
        {"text": "", "must": ["omega"]},
        {"text": text, "never": []},
    )
    code, stdout, stderr = verb(*JSON, "format=json", home=home, stdin=requests)
    assert code == 0, stderr
    free, asked, blank, idle = map(json.loads, stdout.split("\n")[:-1])
    assert free["text"] == idle["text"] == plain["text"]
    assert "unmet" not in free
    assert asked["unmet"] == []
    assert asked["text"].startswith("delta")
    assert "omega psi" in " ".join(asked["text"].split())
    assert said not in asked["text"].split()
    assert (blank["text"], blank["unmet"]) == ("", ["must: omega"])


def test_text_output_warns_and_a_bad_line_ends_it(home: Path) -> None:
    requests = lines({"text": "alpha"}, {"text": " ", "prefix": "x", "must": ["y"]})
    code, stdout, stderr = verb(*JSON, home=home, stdin=requests)
    assert code == 0
    assert stdout.count("\n") == 2
    assert "warning: stdin:2: unmet: prefix: x; must: y" in stderr.split("\n")
    good = lines({"text": "alpha", "never": ["omega"]}, {"text": "beta"})
    (home / "requests").write_bytes(good + b'{"text": "beta", "must": "x"}\n')
    code, stdout, stderr = verb(*JSON, "input=requests", home=home)
    assert code == 2
    assert stdout.count("\n") == 2
    expected = "error: requests:3: request.must='x' must be a list"
    assert stderr.strip().split("\n")[-1] == expected


def test_terms_are_counted_and_can_be_asked_for(home: Path) -> None:
    references = (home / "test.tgt").read_text().split("\n")[:-1]
    # A word that is there, and one that no translation has by itself.
    terms = [f"{line.split()[0]}\tzzz" for line in references]
    (home / "terms").write_text("".join(line + "\n" for line in terms))
    free, constrained = (
        {score["name"]: score for score in json.loads(stdout)}["term accuracy"]
        for code, stdout, _ in (
            verb("evaluate", "checkpoint=run", "terms=terms", *more, home=home)
            for more in ((), ("constrain=true",))
        )
        if code == 0
    )
    assert free["score"] <= 50
    assert free["signature"] == "nterms:80|match:words|search:free"
    assert constrained["score"] == 100
    assert constrained["signature"] == "nterms:80|match:words|search:must"
