"""Which code runs: the version of the package, the commit of a checkout, and the libraries.

It does not know what the code does.
"""

import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

_LIBRARIES = ("torch", "pytorch-lightning", "sentencepiece", "sacrebleu")
_CODE = ("transformer", "conf", "data/pocket", "train.py")


def code_version(*besides: str) -> dict[str, str | None]:
    """By name; a commit ends in "+" where the code of the checkout has changes that are in none.

    Args:
        besides: What is code, too, for whoever asks: files and folders of the checkout.
    """
    versions: dict[str, str | None] = {
        name: _installed(name) for name in ("transformer", *_LIBRARIES)
    }
    return {"commit": _commit((*_CODE, *besides)), "python": platform.python_version(), **versions}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit(code: Sequence[str]) -> str | None:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", *code)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}{'+' if changed else ''}"


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()
