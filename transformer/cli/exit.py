"""Exceptions to exit codes: 0 done, 2 the input or the call is wrong, 130 stopped by Ctrl-C.

Stopped by another signal, the code is the one that a shell knows it by: 143 for SIGTERM, 138 for
SIGUSR1.

Who reads the output may have enough of it (``| head -1``): 141, as the shell says of a filter that
ends so. A full or broken disk, a missing permission and a standard stream that is closed are one
line with the name of the file (2). Anything else is a bug and keeps its traceback (exit code 1).
"""

import errno
import os
import sys
from collections.abc import Callable

from transformer.errors import AnotherRankFailed, InputError, Interrupted
from transformer.escaping import escaped

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP)
_BROKEN = (errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.ETIMEDOUT, errno.ENXIO)


def exit_code_of(action: Callable[[], None]) -> int:
    """Run it; say in one line on stderr what went wrong."""
    _open_closed_streams()
    failure, code = None, 2
    try:
        code = _code_of(action)
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        failure = _explained(error)
    try:
        # What is still held back fails here or, unsaid, when Python exits.
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        failure, code = _explained(error), 2
        _drop_output()
    if failure is not None:
        _tell(failure)
    return code


def _open_closed_streams() -> None:
    """Put something in place of standard streams that are closed (``>&-``).

    The next file would take their number, and Python would drop what is printed, or print errors
    among results. What is read or written there fails, but for messages.
    """
    for name, flags in (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, flags)
            setattr(sys, name, os.fdopen(handle, "r" if name == "stdin" else "w"))


def _explained(error: OSError) -> str:
    """What the world has done to a file; raises the error if that was not it."""
    reason = os.strerror(error.errno or 0)
    if error.errno == errno.EBADF and error.filename is None:
        return f"standard output is closed ({reason}); send it to a file or another program"
    if error.errno in _FULL:
        what = error.filename or "standard output"
        return f"{what} cannot be written ({reason}); make room, or write elsewhere"
    if error.errno in _DENIED and error.filename is not None:
        return f"{error.filename}: {reason}; ask for the right to it, or give another"
    if error.errno in _BROKEN:
        what = error.filename or "a file or a standard stream"
        return f"{what}: {reason}; see whether its disk or terminal is still there"
    raise error


def _code_of(action: Callable[[], None]) -> int:
    try:
        action()
    except InputError as error:
        _tell(error)
        return 2
    except AnotherRankFailed as failure:
        if str(failure):
            print(failure, file=sys.stderr)
        return failure.code
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def _tell(what: object) -> None:
    """One line, whatever names and texts stand in it."""
    print(f"error: {escaped(str(what))}", file=sys.stderr)


def _drop_output() -> None:
    """Python would write what is left once more when it exits, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
