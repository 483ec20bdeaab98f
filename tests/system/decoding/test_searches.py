"""Every search, and the scores of what it found, as a user calls them."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs.runs import verb

TEXT = "alpha beta gamma\ndelta alpha\nbeta\n"


def found(home: Path, *arguments: str) -> list[dict[str, Any]]:
    code, stdout, stderr = verb(
        *("translate", "checkpoint=run", "format=json", *arguments), home=home, stdin=TEXT.encode()
    )
    assert code == 0, stderr
    return [json.loads(line) for line in stdout.split("\n")[:-1]]


def test_samples_depend_on_seed_and_text_alone(home: Path) -> None:
    sampling = ("decoding=sampling", "decoding.nbest=4")
    first = found(home, *sampling)
    assert [len(one["nbest"]) for one in first] == [4, 4, 4]
    again = found(home, *sampling, "batch_tokens=1")
    texts = [[[c["text"] for c in one["nbest"]] for one in each] for each in (first, again)]
    assert texts[0] == texts[1]
    hot = found(home, *sampling, "decoding.seed=2", "decoding.temperature=3.0")
    assert [[c["text"] for c in one["nbest"]] for one in hot] != texts[0]
    # A very low temperature is greedy search.
    cold = found(home, "decoding=sampling", "decoding.temperature=1e-3")
    greedy = found(home, "decoding=greedy")
    assert [one["text"] for one in cold] == [one["text"] for one in greedy]


def test_diverse_groups_give_an_nbest_list_without_doubles(home: Path) -> None:
    for one in found(home, "decoding=diverse", "decoding.diversity=2.0"):
        tokens = [tuple(candidate["tokens"]) for candidate in one["nbest"]]
        assert len(tokens) == len(set(tokens)) > 1


def test_minimum_bayes_risk_ranks_texts_by_expected_utility(home: Path) -> None:
    mbr = ("decoding=mbr", "decoding.candidates=16", "decoding.nbest=4", "decoding.epsilon=0.0")
    first = found(home, *mbr)
    for one in first:
        scores = [candidate["score"] for candidate in one["nbest"]]
        assert scores == sorted(scores, reverse=True)
        assert len({candidate["text"] for candidate in one["nbest"]}) == len(scores)
        assert one["score"] == scores[0] > 0
    again = found(home, *mbr, "batch_tokens=1")
    assert [one["text"] for one in again] == [one["text"] for one in first]


def test_by_equality_the_most_probable_text_wins(home: Path) -> None:
    equality = found(home, "decoding=mbr_nbest", "decoding.utility=operator:eq")
    wide = ("decoding.beam_size=16", "decoding.nbest=16", "decoding.length_penalty=0.0")
    for one, beam in zip(equality, found(home, "decoding=beam", *wide), strict=True):
        # Several hypotheses may spell one text.
        mass: Counter[str] = Counter()
        for candidate in beam["nbest"]:
            mass[candidate["text"]] += math.exp(candidate["log_probability"])
        ((text, most),) = mass.most_common(1)
        assert one["text"] == text
        assert one["score"] == pytest.approx(most / mass.total(), abs=1e-4)


def test_score_gives_a_line_for_a_pair_in_any_batch(home: Path) -> None:
    (home / "in.text").write_text(TEXT)
    (home / "out.text").write_text("beta\n\nalpha delta gamma\n")
    given = ("score", "checkpoint=run", "source=in.text", "target=out.text")
    code, stdout, stderr = verb(*given, "format=json", home=home)
    assert code == 0, stderr
    scores = [json.loads(line) for line in stdout.split("\n")[:-1]]
    assert [score["tokens"][-1] for score in scores] == ["</s>"] * 3
    assert len(scores[1]["tokens"]) == 1
    code, stdout, _ = verb(*given, "batch_tokens=1", home=home)
    values = [float(line) for line in stdout.split("\n")[:-1]]
    for score, value in zip(scores, values, strict=True):
        assert sum(score["token_log_probabilities"]) == pytest.approx(value, abs=1e-4)
