"""``config.yaml`` of a run directory: whole at every moment, and that of the run, not of a call.

It does not know what the config says.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer.common.errors import InputError
from transformer.common.files import remove_parts, written_whole

CONFIG = "config.yaml"


@contextmanager
def said(config: DictConfig, folder: Path) -> Iterator[None]:
    """Let the file say what trains now; what said it before comes back if nothing is trained.

    So a call that is refused, or finds all done, changes nothing for the next ``checkpoint=auto``.

    Args:
        config: The run, resolved.
        folder: Its directory; no other process trains in it.

    Raises:
        InputError: It cannot be written; what was there is whole.
    """
    file = folder / CONFIG
    try:
        before = file.read_bytes() if file.is_file() else None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
    checkpoint = _newest(folder)
    write(OmegaConf.to_yaml(config).encode(), file)
    try:
        yield
    finally:
        # A damaged one may have been set aside already.
        if before is not None and _newest(folder) in (checkpoint, None):
            with suppress(InputError):
                write(before, file)


def read_config(folder: Path) -> dict[str, Any] | None:
    """The plain values of the file; None if there is none, or it is damaged or not resolved."""
    file = folder / CONFIG
    try:
        values = OmegaConf.to_container(OmegaConf.load(file)) if file.is_file() else None
    except Exception:
        # Bytes that are no config make the reader fail in every way there is.
        return None
    if not values or not isinstance(values, dict) or "${" in str(values):
        return None
    return {str(k): v for k, v in values.items()}


def _newest(folder: Path) -> tuple[int, int] | None:
    """Which checkpoint training would go on from; another one is another file."""
    try:
        status = (folder / "checkpoints" / "last.ckpt").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def write(content: bytes, file: Path) -> None:
    """Write the file whole or not at all.

    Raises:
        InputError: It cannot be written.
    """
    try:
        remove_parts(file)
        with written_whole(file) as part:
            part.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"{file} cannot be written: {error.strerror or error}; free some space, or mend the "
            "folder"
        ) from error
