"""What a recipe says of a call: its stages, or one line that refuses it."""

import shlex

import pytest

from transformer.__main__ import main


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["recipe", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err.removeprefix("error: ").rstrip()


def plan(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """The arguments of each stage, verb first, as a dry run prints them."""
    assert main(["recipe", *arguments, "dry_run=true"]) == 0
    said = capsys.readouterr()
    stages = [part.splitlines() for part in said.out.split("# ")[1:]]
    names = [part[0].removesuffix(" (new)") for part in stages]
    commands = [shlex.split(part[-1]) for part in stages]
    assert all(command[:3] == ["python", "-m", "transformer"] for command in commands)
    return {name: command[3:] for name, command in zip(names, commands, strict=True)}
