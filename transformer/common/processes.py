"""Command and signals of a process, and processes that end with their parent."""

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, parent_process
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Ctrl-C; the warning of a scheduler before it takes the machine away; that of SLURM.

If ranks receive different signals, the last of this list counts, as the job is to come back."""

COMMAND = "TRANSFORMER_COMMAND"
"""Environment variable with the command of the user, for the processes that it starts."""


def command_line() -> str:
    """The command of the user, as a shell reads it."""
    main = Path(sys.argv[0])
    program = ["python", main.name] if main.suffix == ".py" else [main.name]
    if main.name == "__main__.py":
        program = ["transformer"]
    return os.environ.get(COMMAND) or shlex.join([*program, *sys.argv[1:]])


def end_with_parent() -> None:
    """End this process when its parent ends: the child of a killed process holds no locks."""
    parent = parent_process()
    number = os.getppid()

    def watch() -> None:
        if parent is not None:
            # There may be a fork server between the two.
            connection.wait([parent.sentinel])
        while parent is None and os.getppid() == number:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def begin_pool_process() -> None:
    """Begin a process of a pool: it ends with its parent, which handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


@contextmanager
def handling(
    handler: Callable[[int, FrameType | None], None], signals: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Handle signals within a block; a forked process ends at SIGTERM, and ignores others."""
    process = os.getpid()

    def handle(signum: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            handler(signum, frame)
        elif signum == signal.SIGTERM:
            os._exit(128 + signum)

    on_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, handle) for number in signals if on_main}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)
