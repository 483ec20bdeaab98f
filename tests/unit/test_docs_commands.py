"""Every command in README and docs is one that works: its keys, choices and files exist."""

import argparse
import re
import runpy
import shlex
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from omegaconf import OmegaConf

from tests.unit.test_docs import FENCE, PAGES, ROOT
from transformer.__main__ import VERBS
from transformer.cli.arguments import config_folder, flags_and_overrides
from transformer.cli.config import compose_config
from transformer.common.errors import InputError

INDENTED = re.compile(r"^\n((?:    .+\n)+)", re.M)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
OURS = re.compile(r"(?:python|transformer|torchrun|srun|make|sh|pytest|[A-Z_]+=\S+) ")
EXAMPLE = re.compile(rf"(?:{'|'.join(VERBS)}) \S*=\S*")
"""A command without its first word."""

VERBS_OF_KINDS = {
    "translate": ("translate.yaml", "ask.yaml"),
    "select": ("select.yaml",),
    "clean": ("clean.yaml",),
}
"""The verbs of kinds of stages that are no trainings."""

PLACEHOLDER = re.compile(r"(?:decoding|experiment)=NAME")
ENDS = {"|", "&&", ";", "||"}
INTO = {"<", ">", ">>", "2>"}


def commands(text: str) -> list[str]:
    """The commands of a page: lines of its blocks of shell, and code spans that begin as one.

    A span may leave out what the command needs besides, as ``…`` at its end says.
    """
    blocks = [code for language, code in FENCE.findall(text) if language in ("", "sh")]
    prose = FENCE.sub("", text)
    blocks += [re.sub("^    ", "", code, flags=re.M) for code in INDENTED.findall(prose)]
    found = [line for block in blocks for line in _lines(block)]
    for paragraph in re.split(r"\n\s*\n|\|", INDENTED.sub("", prose)):
        for span in (span.replace("\n", " ") for span in SPAN.findall(paragraph)):
            if OURS.match(span):
                found.append(f"{span} …")
            elif EXAMPLE.match(span):
                found.append(f"transformer {span} …")
    return found


def _lines(block: str) -> list[str]:
    """Without comments; of a session (``$ ``), what it prints counts where it is a command."""
    lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if OURS.match(line.removeprefix("$ "))]
    return [line for line in lines if line and not line.startswith("#")]


def simple_commands(line: str) -> list[list[str]]:
    """The words of each command of a pipe or a list, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    into = False
    for word in lexer:
        if word in ENDS:
            parts.append([])
        elif word in INTO or into:
            into = word in INTO
        elif parts[-1] or not re.match(r"[A-Z_]+=", word):
            parts[-1].append(word)
    return [part for part in parts if part]


@cache
def objection(line: str) -> str | None:
    """Why a command would not work, or None."""
    try:
        for words in simple_commands(line):
            check(words)
    except (AssertionError, InputError) as error:
        return f"{line}: {error}"
    return None


def check(words: list[str]) -> None:
    """Compose a command of ours; of others, look for their files and targets."""
    whole = [word for word in words if "…" not in word]
    name, *arguments = whole
    for entry, verb in (("train.py", ["train"]), ("transformer", [])):
        if entry in whole and (name not in ("pip", "make")):
            call = [*verb, *whole[whole.index(entry) + 1 :]]
            return check_verb(call, elided=len(whole) < len(words)) if call else None
    if name == "make":
        known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
        assert {word for word in arguments if "=" not in word} <= set(known), "no such target"
    elif name == "pip":
        lists = [names for word in arguments for names in re.findall(r"\[(.*)\]", word)]
        extras = {extra for names in lists for extra in names.split(",")}
        assert extras <= all_extras(), "no such extra"
    elif name in ("python", "sh", "pytest"):
        check_files(arguments)
        if name == "python":
            check_options(words[1:])


def all_extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


def check_files(arguments: list[str]) -> None:
    """Scripts and tests exist, and a script knows the options that are given."""
    paths = [word.strip("[]") for word in arguments if "/" in word]
    for module in [word for word in arguments if word.startswith("benchmarks.")]:
        path = ROOT.joinpath(*module.split("."))
        paths.append(str(path / "__main__.py" if path.is_dir() else path.with_suffix(".py")))
    files = [ROOT / path for path in paths if not path.startswith(("RUN/", "FOLDER/"))]
    for file in files:
        assert file.exists(), f"{file} does not exist"
    if files and files[0].suffix == ".py" and ROOT / "benchmarks" in files[0].parents:
        known = files[0].read_text("utf-8")
        for option in re.findall(r"--[\w-]+", " ".join(arguments)):
            assert f'"{option}"' in known, f"{files[0].name} has no {option}"


class Parsed(Exception):
    """A command has read its options, and would now begin its work."""


def check_options(arguments: list[str]) -> None:
    """The parser of a benchmark accepts the options, those in brackets too.

    What ``…`` leaves out may be missing.
    """
    text = " ".join(arguments)
    elided = "…" in text
    text = re.sub(r"\[[^\]]*…[^\]]*\]", "", text)
    words = [word for word in re.sub(r"\[(--[^\]]*)\]", r"\1", text).split() if "…" not in word]
    script, *options = [word for word in words if word != "-m"] or [""]
    if script.startswith("benchmarks."):
        script = "/".join(script.split("."))
        script += "/__main__.py" if (ROOT / script).is_dir() else ".py"
    file = ROOT / script
    if file.suffix != ".py" or "argparse" not in file.read_text("utf-8"):
        return
    if objection := refusal(file, tuple(options)):
        required = re.search(r"arguments? .*(is|are) required", objection)
        assert elided and required, objection


@cache
def refusal(file: Path, options: tuple[str, ...]) -> str | None:
    """What the parser of a script says against its options, or None.

    The script runs until it has parsed them.
    """
    parsers = argparse.ArgumentParser
    parse_known = parsers.parse_known_args

    def parse_alone(parser: argparse.ArgumentParser, *arguments: Any) -> None:
        with mock.patch.object(parsers, "parse_known_args", parse_known):
            _, unknown = parser.parse_known_args(*arguments)
        if unknown:
            parser.error(f"no option {unknown}")
        raise Parsed

    def parse_with_overrides(parser: argparse.ArgumentParser, *arguments: Any) -> None:
        with mock.patch.object(parsers, "parse_known_args", parse_known):
            _, overrides = parser.parse_known_args(*arguments)
        compose_config("train", overrides)
        raise Parsed

    def refuse(parser: argparse.ArgumentParser, message: str) -> None:
        raise AssertionError(message)

    with (
        mock.patch.object(parsers, "parse_args", parse_alone),
        mock.patch.object(parsers, "parse_known_args", parse_with_overrides),
        mock.patch.object(parsers, "error", refuse),
        mock.patch("sys.argv", [str(file), *options]),
    ):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except Parsed:
            return None
        except AssertionError as error:
            return f"{file.name}: {error}"
    raise AssertionError(f"{file} has parsed nothing")


def check_verb(call: list[str], *, elided: bool) -> None:
    """Compose the config of a verb. A verb alone is mentioned, not called."""
    verb, *arguments = (word for word in call if not PLACEHOLDER.fullmatch(word))
    if verb.startswith("recipe=") and verb != "recipe=NAME":
        return check_recipe(call, elided=elided)
    assert verb in {*VERBS, "COMMAND", "recipe=NAME", "--version"}, f"no verb {verb}"
    if verb == "compare":  # systems are named without a key
        arguments = ["a", "b", *(word for word in arguments if "=" in word)]
    if not arguments or arguments[0] == "--help":
        return None
    if arguments[0] == "--config-dir":  # tests/system/cli/test_wheel.py runs it
        arguments = [word for word in arguments[2:] if not word.startswith("experiment=")]
    flags, overrides = flags_and_overrides(arguments) if verb == "train" else ([], arguments)
    if "--multirun" in flags:
        ranges = re.compile(r"[\w.]+=(tag|interval|range|choice)\(")
        overrides = [
            re.sub(r"=([^\[{(,]+),.*", r"=\1", override)
            for override in overrides
            if not ranges.match(override)
        ]
    keys = [override.partition("=")[0] for override in overrides]
    if verb == "train" and "checkpoint" in keys and "checkpoint=auto" not in overrides:
        groups = [key for key in keys if (config_folder() / key).is_dir()]
        assert not groups, f"a resumed run takes no groups: {groups}"
        overrides = [override for override in overrides if override != "trust=true"]
    known = OmegaConf.load(config_folder() / f"{verb}.yaml")
    if elided and verb != "train" and "checkpoint" in set(known) - set(keys):
        overrides = [*overrides, "checkpoint=RUN"]
    compose_config(verb, overrides)
    return None


def check_recipe(call: list[str], *, elided: bool) -> None:
    """Its own keys, and those of the trainings, also behind the name of a kind of stage."""
    name = call[0].removeprefix("recipe=")
    files = ("recipe.yaml", f"recipe/{name}.yaml")
    assert (config_folder() / files[1]).is_file(), f"no recipe {name}"
    keys = {str(key) for file in files for key in OmegaConf.load(config_folder() / file)}
    of_recipe = [word for word in call if word.partition("=")[0] in keys | {"recipe"}]
    if len(call) > 1 and not elided:
        compose_config("recipe", of_recipe)
    rest = [word for word in call if word not in of_recipe]
    for word in [word for word in rest if word.partition(".")[0] in VERBS_OF_KINDS]:
        kind, key = re.split("[.=]", word)[:2]
        verbs = [OmegaConf.load(config_folder() / verb) for verb in VERBS_OF_KINDS[kind]]
        assert any(key in verb or key == "decoding" for verb in verbs), f"no key {key} of {kind}"
        rest.remove(word)
    compose_config("train", [word.removeprefix("student.") for word in rest])


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.parent == ROOT else pytest.mark.thorough)
        for page in PAGES
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_commands_of_a_page_compose(page: Path) -> None:
    objections = [objection(line) for line in commands(page.read_text("utf-8"))]
    assert [text for text in objections if text] == []


def test_the_pages_have_commands() -> None:
    assert len({line for page in PAGES for line in commands(page.read_text("utf-8"))}) > 150


@pytest.mark.parametrize(
    "text",
    [
        "```sh\npython train.py \\\n    loss=drop\n```\n",
        "see\n\n    transformer translate run=RUN < in > out\n",
        "`python train.py checkpoint=RUN trainer=ddp`",
        "`transformer recipe=distill teacher=RUN translate.devices=cuda output=FOLDER`",
        "`python benchmarks/training/speed.py --quicker`",
    ],
)
def test_a_command_that_does_not_work_is_found(text: str) -> None:
    assert all(objection(line) for line in commands(text))
