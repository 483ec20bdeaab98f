"""``config.yaml`` of a run directory, never half written; its values are those of a RunConfig."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from transformer.common.errors import InputError
from transformer.common.files import remove_parts, written_whole
from transformer.settings.run import RunConfig, plain_values, run_config

CONFIG = "config.yaml"


@contextmanager
def saved_config(config: RunConfig, folder: Path) -> Iterator[None]:
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


def read_config(folder: Path) -> RunConfig | None:
    """The config in the file; None if there is none, or it is damaged."""
    try:
        return run_config(yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError, InputError):
        return None


def _newest(folder: Path) -> tuple[int, int] | None:
    try:
        status = (folder / "checkpoints" / "last.ckpt").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def write_config(config: RunConfig, folder: Path) -> None:
    """Write a config to the file of a run directory."""
    text = yaml.safe_dump(plain_values(config), allow_unicode=True, sort_keys=False)
    _write(text.encode(), folder / CONFIG)


def _write(content: bytes, file: Path) -> None:
    """Write the file whole or not at all."""
    remove_parts(file.parent, file.name)
    with written_whole(file) as part:
        part.write_bytes(content)
