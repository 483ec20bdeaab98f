"""The run directory: its checkpoint files, ``config.yaml``, and files that tell its state.

It imports no torch.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import yaml

from transformer.common.errors import InputError, did_you_mean
from transformer.common.files import (
    given_path,
    is_file_locked,
    locked_file,
    open_unlinked,
    remove_parts,
    written_whole,
)
from transformer.settings.run import RunConfig, plain_values, run_config

TUNED = "tuned"
"""Name of the file that ``tune`` writes: the best weights of a run with the best search."""

LAST = "last"
"""Name of the newest file of a run."""

PREVIOUS = "previous"
"""Name of the file before the newest, which is used if the newest is damaged."""

_FOLDER = "checkpoints"

ENGINE_WEIGHTS = "model.bin"
"""Name of the weights in an export for CTranslate2."""

SAFETENSORS = "model.safetensors"
"""Name of the weights in an export as safetensors."""

ENGINE_EXPORT = (
    "is an export for CTranslate2; translate with engine=ctranslate2, or give the run that it was "
    "made from"
)

CONFIG = "config.yaml"

LOCK = ".lock"
"""Name of the file that a process locks while it trains."""

OUTDATED = "outdated"
"""Begins the names of results of an earlier model, which resumed training sets aside."""

FINISHED = "finished"
"""Name of an empty file: training and tests of the run are over."""

_PATIENCE = 1.0
"""Seconds to wait for a process that only checks whether another one trains."""


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
        file = path / _FOLDER / f"{name}.ckpt"
        if file.is_file():
            return file
    similar = did_you_mean(path.name, [file.name for file in path.parent.glob("*")])
    if path.parent.name:
        similar = similar.replace("mean ", f"mean {path.parent}{os.sep}", 1)
    missing = f"does not exist{similar}; give a run directory or a .ckpt file"
    raise InputError(f"checkpoint={path} {_folder_content(path, names) if exists else missing}")


def _folder_content(path: Path, names: Sequence[str]) -> str:
    """What a folder has instead of these checkpoints, and what to do, for an error."""
    if (path / ENGINE_WEIGHTS).is_file():
        return ENGINE_EXPORT
    if any(path.glob("*.ckpt")):
        return f"is a folder of checkpoints; give its run, {path.parent}, or a file in it"
    run_checkpoints = [*path.glob(f"*/{_FOLDER}/*.ckpt"), *path.glob(f"*/*/{_FOLDER}/*.ckpt")]
    if run_checkpoints:
        newest = max(
            (file.parent for file in run_checkpoints), key=lambda folder: folder.stat().st_mtime
        )
        return f"is a folder of runs, and no run; the newest in it is {newest.parent}"
    files = sorted((path / _FOLDER).glob("*.ckpt"))
    if files:
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


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return any((folder / _FOLDER / f"{name}.ckpt").is_file() for name in (LAST, PREVIOUS))


def newest_checkpoints(folder: Path) -> list[Path]:
    """Every ``step-*.ckpt`` that the run directory keeps, oldest first."""
    return sorted((folder / _FOLDER).glob("step-*.ckpt"))


@contextmanager
def saved_config(config: RunConfig, folder: Path) -> Iterator[None]:
    """Write the config; after the block, restore the former one if no checkpoint was written.

    ``checkpoint=auto`` compares this config with its own: it must be that of the checkpoint.
    """
    file = folder / CONFIG
    former = file.read_bytes() if file.is_file() else None
    checkpoint = _identity_of_last(folder)
    write_config(config, folder)
    try:
        yield
    finally:
        # None: a damaged checkpoint has been renamed.
        if former is not None and _identity_of_last(folder) in (checkpoint, None):
            with suppress(InputError, OSError):
                _write_whole(former, file)


def write_config(config: RunConfig, folder: Path) -> None:
    """Write a config to the file of a run directory."""
    text = yaml.safe_dump(plain_values(config), allow_unicode=True, sort_keys=False)
    _write_whole(text.encode(), folder / CONFIG)


def _write_whole(content: bytes, file: Path) -> None:
    remove_parts(file.parent, file.name)
    with written_whole(file) as part:
        part.write_bytes(content)


def read_config(folder: Path) -> RunConfig | None:
    """The config in the file; None if there is none, or it is damaged."""
    try:
        return run_config(yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError, InputError):
        return None


def _identity_of_last(folder: Path) -> tuple[int, int] | None:
    try:
        status = (folder / _FOLDER / f"{LAST}.ckpt").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def mark_finished(folder: Path) -> None:
    """Record that training and its tests are over."""
    open_unlinked(folder / FINISHED, "a").close()


def mark_unfinished(folder: Path) -> None:
    """Record that training continues."""
    (folder / FINISHED).unlink(missing_ok=True)


def is_finished(folder: Path) -> bool:
    """Whether training and its tests are over."""
    return (folder / FINISHED).exists()


@contextmanager
def locked(folder: Path, verb: str = "trains") -> Iterator[None]:
    """Lock a folder within a block; InputError if another has it, or it cannot be locked."""

    def refuse() -> NoReturn:
        raise InputError(
            f"another process {verb} in {folder}; wait, stop it, or take another folder"
        )

    with ExitStack() as stack:
        try:
            stack.enter_context(locked_file(folder / LOCK, refuse, _PATIENCE))
        except OSError as error:
            reason = error.strerror or error
            raise InputError(
                f"{folder / LOCK} cannot be locked: {reason}; put the run on another disk"
            ) from error
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process, perhaps this one, trains in a run directory."""
    return is_file_locked(folder / LOCK)
