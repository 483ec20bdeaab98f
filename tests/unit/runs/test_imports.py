"""A plain run imports no module of a feature that it does not use."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.runs.processes import tiny_overrides

pytestmark = pytest.mark.thorough

PROGRAM = """
import sys
from transformer.__main__ import main
code = main(["train", *sys.argv[1:]])
own = (name for name in sys.modules if name.startswith("transformer."))
print(*(name for name in own if not hasattr(sys.modules[name], "__path__")))
sys.exit(code)
"""
OPTIONAL = (
    "runs.auto_batch_size",
    "runs.finetuning",
    "runs.tuning",
    "data.streaming",
    "recipes",
    "interchange",
)


def test_a_plain_run_imports_no_optional_feature(tmp_path: Path) -> None:
    run = [*tiny_overrides(tmp_path), "trainer.max_steps=2", f"hydra.run.dir={tmp_path}/run"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *run], capture_output=True, text=True, check=True
    )
    modules = done.stdout.splitlines()[-1].split()
    unused = tuple(f"transformer.{name}" for name in OPTIONAL)
    assert all(map(find_spec, unused))
    assert not [name for name in modules if name.startswith(unused)]
