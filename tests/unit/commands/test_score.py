"""Pairs of two files, and of one file with both sides, have the same scores."""

import json
from pathlib import Path

import pytest

from tests.helpers.decoding.translators import PAIRS
from tests.helpers.runs.tuning_runs import write_run
from transformer.commands.score import score_targets
from transformer.common.errors import InputError
from transformer.settings.evaluation import ScoreConfig


def test_a_file_may_have_both_sides(tmp_path: Path) -> None:
    run = str(write_run(tmp_path))
    sides = [tmp_path / "a.en", tmp_path / "a.de"]
    for file, lines in zip(sides, zip(*PAIRS, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines))
    tsv, jsonl = tmp_path / "a.tsv", tmp_path / "a.jsonl"
    tsv.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    jsonl.write_text("".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in PAIRS))
    expected = list(score_targets(ScoreConfig(run, source=sides[0], target=sides[1])))
    assert len(expected) == len(PAIRS)
    for file in (tsv, jsonl):
        assert list(score_targets(ScoreConfig(run, source=file))) == expected
    with pytest.raises(InputError, match=r"a\.en is read as plain text; give its .* target="):
        list(score_targets(ScoreConfig(run, source=sides[0])))
    with pytest.raises(InputError, match=r"a\.tsv is not plain text: target= is for two plain"):
        list(score_targets(ScoreConfig(run, source=sides[0], target=tsv)))
    with pytest.raises(InputError, match="launch=ray and output=FOLDER go together"):
        ScoreConfig(run, source=tsv, output=tmp_path / "out")
