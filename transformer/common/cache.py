"""A folder of derived files, each of which is there whole or not at all.

Does not know what is in the files. A process killed while it writes leaves a `.part` file of its
own name, which nobody may read; who fills the folder next, under its lock, can delete it.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from transformer.common.errors import InputError
from transformer.common.files import written_whole

logger = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time fill the folder, which is made if need be.

    The processes of a distributed run, and runs side by side, then share one preparation. Who has
    to wait says so in the log. The lock of a killed process is free.

    Raises:
        InputError: the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("waiting for another process that is preparing text in %s", folder)
            lock.acquire()
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def remembered(folder: Path, question: str, answer: Callable[[], str]) -> str:
    """Return what was answered to a question before, or else the answer, which is kept.

    Args:
        folder: whose subfolder "answers" keeps it.
        question: names all that the answer depends on.
        answer: finds it out; an empty one is not believed.

    Raises:
        InputError: the folder cannot be written to.
    """
    index = folder / "answers" / hashlib.sha256(question.encode()).hexdigest()[:24]
    if index.is_file() and (known := index.read_text(encoding="utf-8")):
        return known
    found = answer()
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(index) as part:
            part.write_text(found, encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder, error) from error
    return found


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write to the cache {folder} ({error.strerror}); make it writable, or train with "
        "data.cache=FOLDER"
    )
