"""Wrong calls of translate are one line, and a plain call imports no optional part."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.tuning_runs import write_run
from transformer.cli.translate.translate import main


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("attention=true", "attention=true needs format=json"),
        ("alignment=3", "alignment=3 must be true or false"),
        ("format=xml", "format=xml is unknown; choose text or json"),
        ("format=json", "checkpoint=x does not exist; give a run directory"),
    ],
)
def test_refusals(argument: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint=x", argument]) == 2
    assert capsys.readouterr().err.startswith(f"error: {says}")


COUNT = """
import sys
from transformer.__main__ import main
code = main(["translate", f"checkpoint={sys.argv[1]}"])
names = [name for name in sys.modules if name.startswith("transformer.")]
print(sum(not hasattr(sys.modules[name], "__path__") for name in names), file=sys.stderr)
sys.exit(code)
"""


def test_a_plain_call_imports_at_most_70_modules(tmp_path: Path) -> None:
    call = [sys.executable, "-c", COUNT, str(write_run(tmp_path))]
    done = subprocess.run(call, input="a dog\n", capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert int(done.stderr.splitlines()[-1]) <= 70
