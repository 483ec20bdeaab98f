"""``python -m transformer``: its commands, their help, and how they end."""

import importlib
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest
import yaml

from transformer.__main__ import VERBS, main
from transformer.common.files import CONFIG_DIR
from transformer.common.processor import processor


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    for verb, (_, description) in VERBS.items():
        assert verb in output
        assert description in output
    assert main([]) == 0
    assert capsys.readouterr().out == output


def test_a_wrong_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translat", "checkpoint=x"]) == 2
    message = f"unknown command translat (did you mean translate?); choose {', '.join(VERBS)}"
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert main(["train", "--config-dir"]) == 2
    assert capsys.readouterr().err == "error: --config-dir/-cd: expected one argument\n"
    assert main(["train", "--config-dir="]) == 2
    assert capsys.readouterr().err.startswith("error: --config-dir= names no folder")

    # Ctrl-C while the module of a command is imported.
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


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"train"}))
def test_a_command_has_a_function_and_shows_its_keys_and_asks_for_what_it_needs(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    function, description = VERBS[verb]
    assert callable(resolve_name(f"transformer.cli.{function}"))
    for call in ([verb, "--help"], ["help", verb]):
        assert main(call) == 0
        output = capsys.readouterr().out
        assert output.startswith(f"# {verb}: {description}\n# transformer {verb}")
        keys = re.findall(r"^(\w+): \?\?\?", output, re.M)
        assert keys or verb in ("doctor", "clean")
    if "checkpoint" in keys:
        assert main([verb]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {verb} needs a value for checkpoint=")
        assert error.count("\n") == 1


def test_help_names_the_groups_and_their_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    titles = [line for line in capsys.readouterr().out.split("\n") if line.startswith("# ==== ")]
    assert len(titles) == 11
    for title in (
        "# ==== data: base, which data=pocket builds on",
        "# ==== data=pocket; or files, folder, g2p, inflection, multi30k",
        "# ==== decoding=beam; or diverse, greedy, mbr, mbr_nbest, sampling",
    ):
        assert any(line.startswith(title) for line in titles)


def test_the_versions_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "seed=1", "--version"]) == 0
    output, errors = capsys.readouterr()
    number = r"\d+\.\d+\S*"
    versions = f"transformer {number}, torch {number}, Python {number}"
    assert re.fullmatch(f"{versions}, processor {re.escape(str(processor()))}\n", output)
    assert errors == ""
