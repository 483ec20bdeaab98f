"""Exceptions to exit codes: 0 done, 2 the input or the call is wrong, 130 stopped by Ctrl-C.

Stopped by another signal, the code is the one that a shell knows it by: 143 for SIGTERM, 138 for
SIGUSR1.

Who reads the output may have enough of it (``| head -1``): 141, as the shell says of a filter that
ends so. A full disk and a missing permission are said in one line (2). Anything else is a bug and
keeps its traceback (exit code 1).
"""

import errno
import os
import sys
from collections.abc import Callable

from transformer.errors import AnotherRankFailed, InputError, Interrupted


def exit_code_of(action: Callable[[], None]) -> int:
    """Run it; say in one line on stderr what went wrong."""
    full: OSError | None = None
    code = 2
    try:
        code = _code_of(action)
    except BrokenPipeError:
        _drop_output()
        return 141
    except PermissionError as error:
        if error.filename is None:
            raise
        said = (
            f"error: {error.filename}: {error.strerror}; ask for the right to it, or give another"
        )
        print(said, file=sys.stderr)
    except OSError as error:
        full = _full(error)
    what = "a file" if full is None else full.filename or "a file"
    try:
        # What is still held back fails here or, unsaid, when Python exits.
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        full, what, code = _full(error), "the output", 2
        _drop_output()
    if full is not None:
        said = f"error: {what} cannot be written ({full.strerror}); make room, or write elsewhere"
        print(said, file=sys.stderr)
    return code


def _full(error: OSError) -> OSError:
    """The error, if a disk is full; raises it if not."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return error


def _code_of(action: Callable[[], None]) -> int:
    try:
        action()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except AnotherRankFailed as failure:
        print(failure, file=sys.stderr)
        return failure.code
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        return 130
    return 0


def _drop_output() -> None:
    """Python would write what is left once more when it exits, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
