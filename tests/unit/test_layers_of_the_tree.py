"""Folders import only leftwards, and what must start fast imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import transformer

PACKAGE = Path(transformer.__file__).parent
MAY_IMPORT: dict[str, set[str]] = {
    "common": set(),
    "data": {"common"},
    "model": {"common"},
    "decoding": {"common", "data", "model"},
    "evaluation": {"common", "data", "model", "decoding"},
    "report": {"common", "data", "model", "decoding", "evaluation"},
    "training": {"common", "data", "model", "decoding", "evaluation", "report"},
    "export": {"common", "data", "model", "decoding", "evaluation"},
    "tuning": {"common", "data", "model", "decoding", "evaluation", "training"},
    "recipes": {"common", "data", "model", "evaluation", "training"},
    "cli": {
        *("common", "data", "model", "decoding", "evaluation", "report", "training", "export"),
        *("tuning", "recipes"),
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
    allowed = MAY_IMPORT[folder] | {folder}
    files = list((PACKAGE / folder).rglob("*.py"))
    assert files
    for file in files:
        assert imported(file) <= allowed, file


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        # The translator itself: tests/unit/decoding/translation/test_translator.py.
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
