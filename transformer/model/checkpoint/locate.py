"""The checkpoints of a run directory by their names, and which of them a path means.

It does not know what they hold.
"""

from collections.abc import Sequence
from pathlib import Path

from transformer.common.errors import InputError, did_you_mean
from transformer.common.files import given_path

TUNED = "tuned"
"""Name of the file that ``tune`` writes: the weights of a run and the search that did best."""

LAST, PREVIOUS = "last", "previous"
"""Names of the newest file of a run, and of the one before it, which is there should it fail."""

_FOLDER = "checkpoints"

ENGINE_WEIGHTS = "model.bin"
"""Name of the file of an export that CTranslate2 reads."""

OF_ENGINE = (
    "is an export for CTranslate2; translate with engine=ctranslate2, or give the run that it was "
    "made from"
)
"""What to say of such a folder where a model of ours is wanted."""


def find_checkpoint(path: Path, name: str = TUNED) -> Path:
    """The checkpoint file that a path means: the file itself, or the one in a run directory.

    There it is the first of tuned, best, last and previous that is there, from ``name`` on.

    Raises:
        InputError: There is none.
    """
    path = given_path(path)
    try:
        there = path.exists()
    except OSError as error:
        raise InputError(f"checkpoint={path} cannot be looked at: {error.strerror}") from error
    if path.is_file():
        return path
    if not there:
        beside = [one.name for one in path.parent.glob("*")]
        raise InputError(
            f"checkpoint={path} does not exist{did_you_mean(path.name, beside)}; give a run "
            "directory or a .ckpt file"
        )
    names = (TUNED, "best", LAST, PREVIOUS)
    wanted = [f"{one}.ckpt" for one in names[names.index(name) :]]
    for file in wanted:
        if (path / _FOLDER / file).is_file():
            return path / _FOLDER / file
    raise InputError(f"checkpoint={path} {_instead(path, wanted)}")


def _instead(path: Path, wanted: Sequence[str]) -> str:
    """What a folder holds that has none of the checkpoints that are wanted, and what to do."""
    if (path / ENGINE_WEIGHTS).is_file():
        return OF_ENGINE
    if any(path.glob("*.ckpt")):
        return f"is a folder of checkpoints; give its run, {path.parent}, or a file in it"
    runs = [file.parent.parent for file in path.glob(f"*/{_FOLDER}/*.ckpt")]
    runs += [file.parent.parent for file in path.glob(f"*/*/{_FOLDER}/*.ckpt")]
    if runs:
        newest = max(runs, key=lambda run: (run / _FOLDER).stat().st_mtime)
        return f"is a folder of runs, and no run; the newest in it is {newest}"
    if others := sorted((path / _FOLDER).glob("*.ckpt")):
        return f"holds no {' or '.join(wanted)}; give a file of it, such as {others[0]}"
    if (path / _FOLDER).is_dir():
        return "holds no checkpoint: its run was stopped before it wrote one; train it again"
    return f"holds no {_FOLDER} folder; give a run directory or a .ckpt file"


def run_folder(checkpoint: Path) -> Path:
    """Where the run lives that a checkpoint, or a run directory, belongs to."""
    if checkpoint.is_file():
        inside = checkpoint.resolve().parent
        return inside.parent if inside.name == "checkpoints" else inside
    return checkpoint.resolve()
