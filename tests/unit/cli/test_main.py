"""``python -m transformer``: which verbs there are."""

import importlib
import os
import re
import sys
import threading
from pathlib import Path
from pkgutil import resolve_name
from unittest.mock import Mock

import pytest
import yaml
from torch import distributed as dist

from transformer.__main__ import VERBS, main
from transformer.cli.arguments import config_folder
from transformer.common.errors import InputError
from transformer.common.files import CONFIG_DIR
from transformer.common.processor import processor


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_help_lists_the_verbs(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["transformer", *arguments])
    assert main() == 0
    said = capsys.readouterr()
    assert said.err == ""
    for verb, (_, what) in VERBS.items():
        assert verb in said.out
        assert what in said.out


def test_an_unknown_verb_names_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translat", "checkpoint=x"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err
        == f"error: unknown command translat (did you mean translate?); choose {', '.join(VERBS)}\n"
    )

    assert main(["train", "--config-dir"]) == 2
    assert capsys.readouterr().err == "error: --config-dir/-cd: expected one argument\n"
    assert main(["train", "--config-dir="]) == 2
    assert capsys.readouterr().err.startswith("error: --config-dir= names no folder")

    # Stopped while a verb is imported.
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", stop)
    assert main(["score"]) == 130
    assert capsys.readouterr() == ("", "stopped\n")


def test_habits_of_hydra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """-cd FOLDER is --config-dir; + and ++ before a key that is there change nothing."""
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "soft.yaml").write_text("defaults: [label_smoothed]\nlabel_smoothing: 0.3")
    monkeypatch.setenv(CONFIG_DIR, "")
    for folder in (["-cd", str(tmp_path)], [f"-cd={tmp_path}"]):
        call = ["train", "+loss=soft", "++model.dropout=0.25", "--cfg", "job"]
        assert main([*folder, *call]) == 0
        shown = yaml.safe_load(capfd.readouterr().out)
        assert (shown["loss"]["label_smoothing"], shown["model"]["dropout"]) == (0.3, 0.25)
    assert main(["train", "+model.width=9"]) == 2
    assert capfd.readouterr().err.startswith("error: unknown key model.width")
    assert main(["train", "--resolve", "seed=1"]) == 2
    assert "error: The --resolve flag can only be used" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (InputError("a.en:3: not UTF-8"), 2, "error: a.en:3: not UTF-8\n"),
        (ValueError("a bug"), 1, "\nValueError: a bug\n"),
    ],
)
@pytest.mark.parametrize(("backend", "rank"), [("gloo", 0), ("nccl", 0), ("nccl", 1)])
def test_a_rank_that_fails_waits_for_no_other(
    *,
    error: Exception,
    code: int,
    says: str,
    backend: str,
    rank: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended: list[object] = []

    def fail(_: list[str]) -> None:
        raise error

    def end(code: int) -> None:
        ended.append(code)
        raise SystemExit(code)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with monkeypatch.context() as patch:
        patch.setattr("transformer.__main__._run", fail)
        patch.setattr(os, "_exit", end)
        patch.setattr(threading, "Timer", Mock())
        patch.setattr(dist, "get_backend", lambda: backend)
        patch.setattr(dist, "get_rank", lambda: rank)
        abort = "torch.distributed.distributed_c10d._abort_process_group"
        patch.setattr(abort, lambda: ended.append("aborted"))
        with pytest.raises(SystemExit):
            main(["train"])
    dist.destroy_process_group()
    assert ended == (["aborted", code] if (backend, rank) == ("nccl", 0) else [code])
    assert capsys.readouterr().err.endswith(says)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_a_function_and_a_config(verb: str) -> None:
    assert callable(resolve_name(f"transformer.cli.{VERBS[verb][0]}"))
    assert (config_folder() / f"{verb}.yaml").is_file()


# What these are about is a corpus, not a model.
WITHOUT_MODEL = {"train", "ask", "doctor", "clean", "text", "select", "recipe"}
# This takes several, or none: files of what they say.
OF_SYSTEMS = {"compare", "report"}
# What a verb asks for before all else, where that is no checkpoint.
ASKED = {"ask": "server", "text": "output", "select": "output", "recipe": "output"}
ASKED |= dict.fromkeys(OF_SYSTEMS, "runs")


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"train"}))
def test_help_prints_the_keys_of_a_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"# {verb}: {VERBS[verb][1]}\n# transformer {verb}")
    value = "null" if verb in ("doctor", "clean") else "???"
    assert f"\n{ASKED.get(verb, 'checkpoint')}: {value}" in out
    if verb == "recipe":
        assert "\ndry_run: " in out and "\nteachers: " in out
    for call in ([verb, "-h"], ["help", verb]):
        assert main(call) == 0
        assert capsys.readouterr().out == out


@pytest.mark.parametrize("verb", ["train", "translate", "evaluate", "doctor"])
def test_a_verb_tells_the_keys_of_its_groups_and_their_choices(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "--help"]) == 0
    titles = [line for line in capsys.readouterr().out.split("\n") if line.startswith("# ==== ")]
    corpus = [
        "# ==== data: base, which data=pocket builds on",
        "# ==== data=pocket; or files, folder, g2p, inflection, multi30k",
    ]
    search = ["# ==== decoding=beam; or diverse, greedy, mbr, mbr_nbest, sampling"]
    wanted = {"train": [*corpus, *search], "doctor": corpus}.get(verb, search)
    assert all(any(line.startswith(title) for line in titles) for title in wanted)
    assert len(titles) == {"train": 11}.get(verb, len(wanted))


@pytest.mark.parametrize("verb", sorted(set(VERBS) - WITHOUT_MODEL - OF_SYSTEMS))
def test_a_verb_without_a_checkpoint_asks_for_one(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {verb} needs a value for checkpoint=")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("call", [["--version"], ["train", "seed=1", "--version"]])
def test_the_versions_are_one_line(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(call) == 0
    said = capsys.readouterr()
    number = r"\d+\.\d+\S*"
    versions = f"transformer {number}, torch {number}, Python {number}"
    kind = re.escape(str(processor()))
    assert re.fullmatch(f"{versions}, processor {kind}\n", said.out)
    assert said.err == ""
