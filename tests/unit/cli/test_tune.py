"""``tune`` on files with random weights: what it writes where, and what it refuses."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.helpers.runs.tuning_runs import write_run
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE, read_payload
from transformer.common.errors import InputError


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no test changes."""
    return write_run(tmp_path_factory.mktemp("run"))


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["tune", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_file_keeps_all_but_its_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path)
    file = run / "checkpoints" / "best.ckpt"
    before = read_payload(file)
    others = contents(run)
    keys = (f"checkpoint={file}", "metric=chrf", "beam_sizes=[3]", "length_penalties=[0.6]")
    code, stdout, stderr = call(capsys, *keys)
    assert code == 0, stderr
    report = json.loads(stdout)
    assert report["checkpoint"] == str(file)
    assert [trial["weights"] for trial in report["trials"]] == ["own", "own"]
    after = read_payload(file)
    decoding = after[PORTABLE]["config"]["decoding"]
    for key in ("algorithm", "beam_size", "length_penalty"):
        assert decoding[key] == report["best"][key]
    after[PORTABLE]["config"]["decoding"] = before[PORTABLE]["config"]["decoding"]
    assert after[PORTABLE]["config"] == before[PORTABLE]["config"]
    assert after.keys() == before.keys()
    torch.testing.assert_close(after["state_dict"], before["state_dict"])
    assert {path for path, data in contents(run).items() if others.get(path) != data} <= {file}


class Oracle:
    """A translator that is right on some lines, by its beam size."""

    def __init__(self, translator: Any, right: dict[int, range]) -> None:
        self.right = right[translator.search.beam_size]

    def translate(self, sources: Sequence[str]) -> list[SimpleNamespace]:
        numbers = (int(source.removeprefix("line ")) for source in sources)
        texts = (f"good {n}" if n in self.right else f"bad {n}" for n in numbers)
        return [SimpleNamespace(text=text) for text in texts]


@pytest.mark.parametrize(
    ("right", "replaces", "sentences"), [(52, False, "10"), (80, True, "10"), (80, True, "null")]
)
def test_only_a_search_that_is_surely_better_on_all_of_validation_replaces_that_of_the_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    right: int,
    replaces: bool,
    sentences: str,
) -> None:
    run = write_run(tmp_path)
    (tmp_path / "validation.en").write_text("".join(f"line {n}\n" for n in range(100)))
    (tmp_path / "validation.de").write_text("".join(f"good {n}\n" for n in range(100)))
    # Of the first 10 lines the run's own beam of 2 has 5 right, the other has all.
    lines = {2: range(5, 55), 3: range(right)}
    monkeypatch.setattr("transformer.runs.tuning.in_documents", lambda one: Oracle(one, lines))
    keys = ("metric=exact_match", "beam_sizes=[3]", "length_penalties=[0.0]", "weights=[single]")
    code, stdout, stderr = call(capsys, f"checkpoint={run}", f"sentences={sentences}", *keys)
    assert code == 0, stderr
    assert (run / "checkpoints" / "tuned.ckpt").exists() == replaces
    report = json.loads(stdout)
    assert report["best"]["beam_size"] == (3 if replaces else 2)
    [test] = report["tests"]
    assert (test["replaces"], test["sentences"]) == (replaces, 100)
    says = "beam 3, penalty 0.00 replaces single, beam 2" if replaces else "beam 2, penalty 0.00 st"
    assert f"single, {says}" in stderr and " on all 100 sentences, p = " in stderr


def test_weights_that_a_run_lacks_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ema, names in ((False, ["single", "average"]), (True, ["ema", "single", "average"])):
        run = write_run(tmp_path, ema=ema)
        code, stdout, stderr = call(capsys, f"checkpoint={run}", "beam_sizes=[1]", "metric=chrf")
        assert code == 0, stderr
        assert ("without weights=ema: the run kept no moving average" in stderr) == (not ema)
        trials = [(trial["weights"], trial["algorithm"]) for trial in json.loads(stdout)["trials"]]
        assert [name for name, algorithm in trials if algorithm == "beam"] == names
        assert [algorithm for _, algorithm in trials[len(names) :]] == ["greedy"]
        (run / "checkpoints" / "tuned.ckpt").unlink(missing_ok=True)


def test_if_nothing_is_better_or_a_key_is_wrong_nothing_is_written(
    untouched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(untouched)
    # Random weights match no reference.
    keys = (f"checkpoint={untouched}", "metric=exact_match", "beam_sizes=[1,3]")
    code, stdout, stderr = call(capsys, *keys)
    assert code == 0, stderr
    best = untouched / "checkpoints" / "best.ckpt"
    assert f"nothing is written: no setting is significantly better than {best} as it is:" in stderr
    report = json.loads(stdout)
    assert (report["checkpoint"], report["best"]) == (str(best), report["before"])
    for argument, message in (
        ("metric=meteor", "metric meteor is unknown"),
        ("weights=[swa]", "weights='swa' must be single or average or ema"),
        ("beam_sizes=[0]", "decoding.beam_size=0 must be from 1 to 10000"),
    ):
        code, stdout, stderr = call(capsys, f"checkpoint={untouched}", argument)
        assert (code, stdout) == (2, "")
        assert message in stderr.strip().split("\n")[-1]
        assert "weights  algorithm" not in stderr
    assert contents(untouched) == before


def test_where_nothing_can_be_written_nothing_is_searched(
    untouched: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise InputError(f"{folder} cannot be written to")

    monkeypatch.setattr("transformer.commands.tune.require_writable", refuse)
    folder = untouched / "checkpoints"
    for checkpoint in (untouched, folder / "best.ckpt"):
        code, _, stderr = call(capsys, f"checkpoint={checkpoint}", "beam_sizes=[1]")
        assert code == 2
        assert stderr.endswith(f"error: {folder} cannot be written to\n")
