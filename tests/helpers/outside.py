"""An export as another program uses it: by the README.md in its folder, and nothing of ours."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# An import of one of these fails, as where it is not installed.
_ABSENT = "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformer', 'hydra']))\n"


def translated_outside(folder: Path, texts: Sequence[str]) -> list[str]:
    """Call the program of README.md in its folder, with CTranslate2 and SentencePiece alone."""
    [program] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", _ABSENT + program],
        input="".join(text + "\n" for text in texts).encode(),
        capture_output=True,
        cwd=folder,
        env=environment | {"OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\n")[:-1]
