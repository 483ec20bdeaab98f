"""Every search, and the scores of given pairs, by their commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs.runs import verb

TEXT = "alpha beta gamma\ndelta alpha\nbeta\n"


def translated(home: Path, *arguments: str) -> list[dict[str, Any]]:
    call = ("translate", "checkpoint=run", "format=json", *arguments)
    code, stdout, stderr = verb(*call, home=home, stdin=TEXT.encode())
    assert code == 0, stderr
    return [json.loads(line) for line in stdout.split("\n")[:-1]]


@pytest.mark.parametrize(
    "search",
    [
        ("decoding=beam", "decoding.nbest=4"),
        ("decoding=sampling", "decoding.nbest=4"),
        ("decoding=diverse", "decoding.diversity=2.0"),
        ("decoding=mbr", "decoding.candidates=16", "decoding.nbest=4", "decoding.epsilon=0.0"),
        ("decoding=mbr_nbest", "decoding.nbest=4"),
    ],
    ids=lambda search: search[0],
)
def test_nbest_lists_are_ranked_and_the_same_in_any_batch(
    search: tuple[str, ...], home: Path
) -> None:
    found = translated(home, *search)
    texts = [[candidate["text"] for candidate in line["nbest"]] for line in found]
    again = translated(home, *search, "batch_tokens=1")
    assert [[candidate["text"] for candidate in line["nbest"]] for line in again] == texts
    for line in found:
        scores = [candidate["score"] for candidate in line["nbest"]]
        assert scores == sorted(scores, reverse=True)
        assert line["score"] == scores[0]
        tokens = {tuple(candidate["tokens"]) for candidate in line["nbest"]}
        assert len(tokens) > 1
        assert "sampling" in search[0] or len(tokens) == len(scores)


def test_very_cold_samples_are_greedy_search(home: Path) -> None:
    cold = translated(home, "decoding=sampling", "decoding.temperature=1e-3")
    greedy = translated(home, "decoding=greedy")
    assert [line["text"] for line in cold] == [line["text"] for line in greedy]
    hot = translated(home, "decoding=sampling", "decoding.seed=2", "decoding.temperature=3.0")
    assert [line["text"] for line in hot] != [line["text"] for line in greedy]


def test_score_gives_a_line_for_a_pair_in_any_batch(home: Path) -> None:
    (home / "in.text").write_text(TEXT)
    (home / "out.text").write_text("beta\n\nalpha delta gamma\n")
    call = ("score", "checkpoint=run", "source=in.text", "target=out.text")
    code, stdout, stderr = verb(*call, "format=json", home=home)
    assert code == 0, stderr
    scores = [json.loads(line) for line in stdout.split("\n")[:-1]]
    assert [score["tokens"][-1] for score in scores] == ["</s>"] * 3
    assert len(scores[1]["tokens"]) == 1
    code, stdout, _ = verb(*call, "batch_tokens=1", home=home)
    values = [float(line) for line in stdout.split("\n")[:-1]]
    for score, value in zip(scores, values, strict=True):
        assert sum(score["token_log_probabilities"]) == pytest.approx(value, abs=1e-4)
