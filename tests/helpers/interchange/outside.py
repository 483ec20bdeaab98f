"""An export as another program uses it: by the README.md in its folder, and nothing of ours."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# An import of one of these fails, as where it is not installed.
_ABSENT = "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformer', 'hydra']))\n"
_CALL = "import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"


def translated_outside(folder: Path, texts: Sequence[str]) -> list[str]:
    """Translate with the program of README.md, CTranslate2 and SentencePiece alone."""
    done = called_outside(folder, texts)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\n")[:-1]


def called_outside(folder: Path, texts: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Save the program of README.md beside it, and call it from another folder."""
    [program] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    (folder / "translate.py").write_text(program, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", _ABSENT + _CALL, str(folder / "translate.py")],
        input="".join(text + "\n" for text in texts).encode(),
        capture_output=True,
        cwd=folder.parent,
        env=environment | {"OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
        timeout=60,
        check=False,
    )
