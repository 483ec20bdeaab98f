"""Folders import one way, and what must start fast imports nothing heavy."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import transformer

PACKAGE = Path(transformer.__file__).parent
ORDER = (
    "common",
    "settings",
    "data",
    "model",
    "checkpoint",
    "decoding",
    "evaluation",
    "quality",
    "reports",
    "interchange",
    "training",
    "tasks",
    "runs",
    "recipes",
    "serving",
    "commands",
    "cli",
)
"""The folders of the package; each imports only from those above it."""

STRANGERS = [
    {"data", "model"},
    {"recipes", "interchange"},
    {"serving", "training"},
    {"serving", "tasks"},
    {"serving", "runs"},
    {"serving", "recipes"},
    {"serving", "interchange"},
]
"""Folders that do not import each other."""

_MODULE = re.compile(rf"transformer\.({'|'.join(ORDER)})(\.\w+)*(:\w+)?")
"""A text that names a module, or what is in it, such as ``transformer.tasks.base:Task``."""


@cache
def imported(file: Path) -> frozenset[str]:
    """Modules of the package that a file imports, at its top, inside a function, or by a string."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import hides the folder"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and _MODULE.fullmatch(str(node.value)):
            names.add(str(node.value).partition(":")[0])
    return frozenset(name for name in names if name.startswith("transformer."))


def test_imports_go_one_way() -> None:
    assert {file.parent.name for file in PACKAGE.glob("*/*.py")} == set(ORDER)
    for number, folder in enumerate(ORDER):
        allowed = set(ORDER[: number + 1])
        for pair in STRANGERS:
            if folder in pair:
                allowed -= pair - {folder}
        for file in (PACKAGE / folder).rglob("*.py"):
            assert {name.split(".")[1] for name in imported(file)} <= allowed, file


def test_the_names_of_the_package_are_those_that_editors_see() -> None:
    """Those for type checkers, and those that are imported when they are first used."""
    [block] = [
        node
        for node in ast.parse((PACKAGE / "__init__.py").read_text("utf-8")).body
        if isinstance(node, ast.If)
    ]
    seen = {node.names[0].name: node.module for node in block.body if type(node) is ast.ImportFrom}
    assert {name: f"transformer.{module}" for name, module in transformer._MODULES.items()} == seen
    assert all(getattr(transformer, name) is not None for name in transformer.__all__)
    with pytest.raises(AttributeError, match="Nothing"):
        transformer.Nothing  # noqa: B018


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        (
            "transformer.interchange.translators, transformer.commands.report",
            "pytorch_lightning datasets pandas tensorboard",
        ),
        (
            "transformer.__main__, transformer.cli.config, transformer.cli.corpus, "
            "transformer.cli.evaluate, transformer.cli.models, transformer.cli.translate",
            "torch sentencepiece rich",
        ),
        ("transformer.__main__", "torch hydra"),
    ],
)
def test_what_must_start_fast_imports_nothing_heavy(modules: str, heavy: str) -> None:
    code = f"import sys, {modules}; print(*sorted(set('{heavy}'.split()) & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "\n"
