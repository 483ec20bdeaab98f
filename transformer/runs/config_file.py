"""``config.yaml`` of a run directory, never half written; its content is not known here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from transformer.common.errors import InputError
from transformer.common.files import remove_parts, written_whole

CONFIG = "config.yaml"


@contextmanager
def saved_config(config: Mapping[str, Any], folder: Path) -> Iterator[None]:
    """Write the config; restore the former, for ``checkpoint=auto``, if nothing is trained."""
    file = folder / CONFIG
    before = file.read_bytes() if file.is_file() else None
    checkpoint = _newest(folder)
    write_config(config, folder)
    try:
        yield
    finally:
        # None: a damaged checkpoint has been renamed.
        if before is not None and _newest(folder) in (checkpoint, None):
            with suppress(InputError, OSError):
                _write(before, file)


def read_config(folder: Path) -> dict[str, Any] | None:
    """The plain values of the file; None if there is none, or it is damaged or not resolved."""
    file = folder / CONFIG
    try:
        values = OmegaConf.to_container(OmegaConf.load(file)) if file.is_file() else None
    except Exception:
        # The reader has no common class of errors for damaged files.
        return None
    if not values or not isinstance(values, dict) or "${" in str(values):
        return None
    return {str(k): v for k, v in values.items()}


def _newest(folder: Path) -> tuple[int, int] | None:
    try:
        status = (folder / "checkpoints" / "last.ckpt").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def write_config(config: Mapping[str, Any], folder: Path) -> None:
    """Write the plain values of a config to the file of a run directory."""
    _write(OmegaConf.to_yaml(OmegaConf.create(dict(config))).encode(), folder / CONFIG)


def _write(content: bytes, file: Path) -> None:
    """Write the file whole or not at all."""
    remove_parts(file.parent, file.name)
    with written_whole(file) as part:
        part.write_bytes(content)
