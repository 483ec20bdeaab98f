"""Helpers for processes; it does not know what a process does."""

import os
import threading
import time
from multiprocessing import connection, parent_process


def end_with_parent() -> None:
    """Let this process end when its parent does, however that is.

    Otherwise the children of a killed process would wait for it for ever, and hold its locks.
    """
    parent, number = parent_process(), os.getppid()

    def watch() -> None:
        if parent is not None:
            # A fork server may stand between the two.
            connection.wait([parent.sentinel])
        while parent is None and os.getppid() == number:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
