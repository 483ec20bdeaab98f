"""A folder of derived files, each of which is there whole or not at all.

Does not know what is in the files. A process killed while it writes leaves a `.part` file, which
nobody reads and the next writer overwrites.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from transformer.errors import InputError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a path to write to (a file or a folder), which becomes ``path`` when all went well."""
    part = path.with_name(path.name + f".{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time fill the folder, which is made if need be.

    The processes of a distributed run, and runs side by side, then share one preparation. The
    lock of a killed process is free.

    Raises:
        InputError: the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire()
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder} ({error.strerror}); set data.cache=FOLDER"
        ) from error
    try:
        yield
    finally:
        lock.release()
