"""Exceptions to exit codes: 0 done, 2 the input or the call is wrong, 130 stopped by Ctrl-C.

Stopped by another signal, the code is the one that a shell knows it by: 143 for SIGTERM, 138 for
SIGUSR1.

Who reads the output may have enough of it (``| head -1``): 141, as the shell says of a filter that
ends so. A full disk is said in one line (2). Anything else is a bug and keeps its traceback (exit
code 1).
"""

import errno
import os
import sys
from collections.abc import Callable

from transformer.errors import AnotherRankFailed, InputError, Interrupted


def exit_code_of(action: Callable[[], None]) -> int:
    """Run it; say in one line on stderr what went wrong."""
    try:
        code = _code_of(action)
        # What is still held back fails here or, unsaid, when Python exits.
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _drop_output()
        what = error.filename or "the output"
        print(
            f"error: {what} cannot be written ({error.strerror}); make room, or write elsewhere",
            file=sys.stderr,
        )
        return 2
    return code


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
