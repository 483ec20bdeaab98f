"""Exceptions to exit codes: 0 done, 2 wrong input or call, 130 stopped by Ctrl-C.

Stopped by another signal, the code is the one of a shell: 143 for SIGTERM, 138 for SIGUSR1, and 141
if the reader of the output has ended (``| head -1``). A file or a standard stream that cannot be
read or written is one line (2). Anything else is a bug and keeps its traceback (1).
"""

import errno
import os
import sys
from collections.abc import Callable
from types import FrameType

from transformer.common.errors import (
    AnotherRankFailed,
    InputError,
    Interrupted,
    Terminated,
    code_of_stop,
)
from transformer.common.escaping import escaped

_OF_STREAMS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ESTALE,
    errno.EREMOTEIO,
    errno.ETIMEDOUT,
    errno.ENXIO,
    errno.EBADF,
}
"""Errors of standard streams, which have no file name."""


def run_to_exit_code(action: Callable[[], None]) -> int:
    """Run a command; an error of the user is one line on stderr."""
    _open_closed_streams()
    try:
        code = _exit_code(action)
    except OSError as error:
        code = _report_os_error(error)
    try:
        # Buffered output fails here or, without a message, when Python exits.
        sys.stdout.flush()
    except OSError as error:
        code = _report_os_error(error)
    return code


def terminate(signum: int, frame: FrameType | None) -> None:
    """Raise Terminated: the signal handler of a command."""
    raise Terminated


def _open_closed_streams() -> None:
    """Replace standard streams that are closed (``>&-``): the next file would get their number."""
    for name, flags in (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, flags)
            setattr(sys, name, os.fdopen(handle, "r" if name == "stdin" else "w"))


def _report_os_error(error: OSError) -> int:
    """Print one line about a file or a standard stream; raises the error if it is of neither."""
    if error.filename is None:
        # Python would write the rest of the output once more when it exits, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 141
    if error.filename is None and error.errno not in _OF_STREAMS:
        raise error
    reason = os.strerror(error.errno or 0)
    advice = "check its name, permissions and disk, or give another"
    _print_error(f"{error.filename or 'standard output'}: {reason}; {advice}")
    return 2


def _exit_code(action: Callable[[], None]) -> int:
    try:
        action()
    except InputError as error:
        _print_error(error)
        return 2
    except (AnotherRankFailed, Interrupted) as stop:
        if str(stop):
            print(stop, file=sys.stderr)
        return stop.code
    except KeyboardInterrupt as stop:
        print("stopped", file=sys.stderr)
        return code_of_stop(stop)
    return 0


def _print_error(message: object) -> None:
    print(f"error: {escaped(str(message))}", file=sys.stderr)
