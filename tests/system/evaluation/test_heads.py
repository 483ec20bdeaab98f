"""Heads ranked, and done without, as a user calls for it."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs.runs import verb

pytestmark = pytest.mark.thorough


def test_heads_ranks_every_head_and_evaluate_agrees(home: Path) -> None:
    code, stdout, stderr = verb("heads", "checkpoint=run", "prune=[0.5]", home=home)
    assert code == 0, stderr
    told = json.loads(stdout)
    assert (told["metric"], len(told["heads"])) == ("loss", 24)
    costs = [head["difference"] for head in told["heads"]]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 1e-4
    cheapest = [head["head"] for head in told["heads"][:-13:-1]]
    assert told["pruned"][0]["heads_off"] == cheapest
    assert "note:" not in stderr
    code, stdout, stderr = verb(
        *("heads", "checkpoint=run", "metric=bleu", "split=test", "prune=[0.75]"), home=home
    )
    assert code == 0, stderr
    assert "note: heads chosen on split=test do too well there" in stderr
    told = json.loads(stdout)
    pruned = told["pruned"][0]
    off = f"heads_off=[{','.join(pruned['heads_off'])}]"
    code, stdout, stderr = verb("evaluate", "checkpoint=run", off, home=home)
    assert code == 0, stderr
    assert json.loads(stdout)[0]["signature"] == told["signature"]
    assert json.loads(stdout)[0]["score"] == round(pruned["score"], 2)
