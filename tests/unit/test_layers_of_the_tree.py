"""Folders import only leftwards, and what must start fast imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import transformer

PACKAGE = Path(transformer.__file__).parent
MAY_IMPORT: dict[str, set[str]] = {
    "data": set(),
    "model": set(),
    "doctor": {"data"},
    "evaluation": set(),
    "decoding": {"data", "model"},
    "training": {"data", "model", "decoding", "evaluation", "doctor"},
    "export": {"data", "model", "decoding", "evaluation"},
    "tuning": {"data", "model", "decoding", "evaluation", "training"},
    "recipes": {"data", "model", "evaluation", "training"},
    "cli": {
        *("data", "doctor", "model", "decoding", "evaluation", "training", "export", "tuning"),
        "recipes",
    },
}


def imported(file: Path) -> set[str]:
    """Folders of the package that a file imports from, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import hides the folder"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("transformer.")}


def test_every_folder_has_its_place() -> None:
    assert {file.parent.name for file in PACKAGE.glob("*/*.py")} == set(MAY_IMPORT)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_go_one_way(folder: str) -> None:
    allowed = MAY_IMPORT[folder] | {folder, "errors", "escaping", "files", "processes", "schema"}
    files = list((PACKAGE / folder).rglob("*.py"))
    assert files
    for file in files:
        assert imported(file) <= allowed, file


def test_nothing_lies_below_the_errors_and_those_alone_below_the_files() -> None:
    for name in ("errors", "escaping", "processes"):
        assert imported(PACKAGE / f"{name}.py") == set()
    assert imported(PACKAGE / "files.py") == {"errors"}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        # The translator itself: tests/unit/decoding/test_translator.py.
        ("transformer.cli.load", "pytorch_lightning datasets pandas sacrebleu tensorboard"),
        ("transformer.cli.compose", "torch sentencepiece"),
        ("transformer.__main__", "torch hydra"),
    ],
)
def test_what_must_start_fast_imports_nothing_heavy(module: str, heavy: str) -> None:
    code = f"import sys, {module}; print(*sorted(set('{heavy}'.split()) & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
