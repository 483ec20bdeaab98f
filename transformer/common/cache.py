"""A folder of derived files, each written atomically, by the process that has its lock."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from transformer.common import locks
from transformer.common.errors import InputError
from transformer.common.files import written_whole

logger = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder, and let one process at a time fill it; a waiting process logs that."""

    def wait() -> None:
        logger.info("waiting for another process that is preparing text in %s", folder)

    with ExitStack() as stack:
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locks.locked(folder / ".lock", wait))
        yield


def remembered(folder: Path, question: str, answer: Callable[[], str]) -> str:
    """The cached answer to a question, which names all that the answer depends on, or a new one."""
    file = folder / "answers" / hashlib.sha256(question.encode()).hexdigest()[:24]
    if file.is_file() and (known := file.read_text(encoding="utf-8")):
        return known
    found = answer()
    with _writing(folder):
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as part:
            part.write_text(found, encoding="utf-8")
    return found


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder} ({error.strerror}); make it writable, or train "
            "with data.cache=FOLDER"
        ) from error
