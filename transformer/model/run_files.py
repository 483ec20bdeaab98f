"""The checkpoints of a run directory by their names, and which of them a path means.

It does not know what they hold.
"""

import difflib
from pathlib import Path

from transformer.errors import InputError
from transformer.files import given_path

TUNED = "tuned"
"""Name of the file that ``tune`` writes: the weights of a run and the search that did best."""

LAST, PREVIOUS = "last", "previous"
"""Names of the newest file of a run, and of the one before it, which is there should it fail."""

_FOLDER = "checkpoints"


def find_checkpoint(path: Path, name: str = TUNED) -> Path:
    """The checkpoint file that a path means: the file itself, or the one in a run directory.

    There it is the first of tuned, best, last and previous that is there, from ``name`` on.

    Raises:
        InputError: There is none.
    """
    path = given_path(path)
    if path.is_file():
        return path
    if not path.exists():
        raise InputError(
            f"checkpoint={path} does not exist{_near(path)}; give a run directory or a .ckpt file"
        )
    names = (TUNED, "best", LAST, PREVIOUS)
    for candidate in names[names.index(name) :]:
        file = path / _FOLDER / f"{candidate}.ckpt"
        if file.is_file():
            return file
    raise InputError(f"checkpoint={path} {_instead(path)}")


def _near(path: Path) -> str:
    """What the user may have meant, in parentheses; empty when nothing is near."""
    beside = [one.name for one in path.parent.glob("*")]
    near = difflib.get_close_matches(path.name, beside, n=1)
    return f" (did you mean {path.parent / near[0]}?)" if near else ""


def _instead(path: Path) -> str:
    """What a folder holds that has no checkpoint of its own, and what to do."""
    runs = {file.parent.parent for file in path.glob(f"*/{_FOLDER}/*.ckpt")}
    runs |= {file.parent.parent for file in path.glob(f"*/*/{_FOLDER}/*.ckpt")}
    if runs:
        newest = max(runs, key=lambda run: (run / _FOLDER).stat().st_mtime)
        return f"is a folder of {len(runs)} runs; give one of them: the newest is {newest}"
    if (path / _FOLDER).is_dir():
        return (
            "holds no best.ckpt or last.ckpt: its run was stopped before it wrote one; train it "
            "again, without checkpoint="
        )
    return f"holds no {_FOLDER} folder; give a run directory or a .ckpt file"
