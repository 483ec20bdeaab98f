"""Finds the checkpoint file of a run directory."""

import os
from collections.abc import Sequence
from pathlib import Path

from transformer.common.errors import InputError, did_you_mean
from transformer.common.files import given_path

TUNED = "tuned"
"""Name of the file that ``tune`` writes: the best weights of a run with the best search."""

LAST, PREVIOUS = "last", "previous"
"""Names of the newest file of a run, and of the previous file, used if the newest is damaged."""

_FOLDER = "checkpoints"

ENGINE_WEIGHTS, SAFETENSORS = "model.bin", "model.safetensors"
"""Names of the weights in an export: for CTranslate2, and as safetensors."""

ENGINE_EXPORT = (
    "is an export for CTranslate2; translate with engine=ctranslate2, or give the run that it was "
    "made from"
)


def find_checkpoint(path: Path, name: str = TUNED) -> Path:
    """A file, or a run's first of tuned, best, last and previous from ``name``; or InputError."""
    path = given_path(path)
    try:
        exists = path.exists()
    except OSError as error:
        raise InputError(f"checkpoint={path} cannot be read: {error.strerror}") from error
    if path.is_file():
        return path
    names = [TUNED, "best", LAST, PREVIOUS]
    names = names[names.index(name) :]
    for name in names:
        if (file := path / _FOLDER / f"{name}.ckpt").is_file():
            return file
    similar = did_you_mean(path.name, [file.name for file in path.parent.glob("*")])
    if path.parent.name:
        similar = similar.replace("mean ", f"mean {path.parent}{os.sep}", 1)
    missing = f"does not exist{similar}; give a run directory or a .ckpt file"
    raise InputError(f"checkpoint={path} {_folder_content(path, names) if exists else missing}")


def _folder_content(path: Path, names: Sequence[str]) -> str:
    if (path / ENGINE_WEIGHTS).is_file():
        return ENGINE_EXPORT
    if any(path.glob("*.ckpt")):
        return f"is a folder of checkpoints; give its run, {path.parent}, or a file in it"
    files = [*path.glob(f"*/{_FOLDER}/*.ckpt"), *path.glob(f"*/*/{_FOLDER}/*.ckpt")]
    if files:
        newest = max((file.parent for file in files), key=lambda folder: folder.stat().st_mtime)
        return f"is a folder of runs, and no run; the newest in it is {newest.parent}"
    if files := sorted((path / _FOLDER).glob("*.ckpt")):
        wanted = " or ".join(f"{name}.ckpt" for name in names)
        return f"holds no {wanted}; give a file of it, such as {files[0]}"
    if (path / _FOLDER).is_dir():
        return "holds no checkpoint: its run was stopped before it wrote one; train it again"
    if (path / "config.json").is_file():
        return "is no run; a model of another framework is imported: transformer import"
    return f"holds no {_FOLDER} folder; give a run directory or a .ckpt file"


def checkpoint_file(path: Path) -> Path:
    """The checkpoint file that a path means, or the folder of an export."""
    return path if is_exported(path) else find_checkpoint(path)


def is_exported(path: Path, weights: str = SAFETENSORS) -> bool:
    """Whether a path is a readable folder with weights of that name."""
    return os.path.isfile(path / weights)


def is_ctranslate2(path: Path) -> bool:
    """Whether a path is an export for CTranslate2."""
    return is_exported(path, ENGINE_WEIGHTS)


def run_folder(checkpoint: Path) -> Path:
    """The run directory of a checkpoint; a run directory returns itself."""
    if checkpoint.is_file():
        folder = checkpoint.resolve().parent
        return folder.parent if is_of_run(checkpoint) else folder
    return checkpoint.resolve()


def is_of_run(checkpoint: Path) -> bool:
    """Whether a file lies in the folder of the checkpoints of a run."""
    return checkpoint.resolve().parent.name == _FOLDER
