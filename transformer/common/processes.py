"""Helpers for processes."""

import os
import threading
import time
from multiprocessing import connection, parent_process


def end_with_parent() -> None:
    """End this process when its parent ends.

    Otherwise the children of a killed process would wait forever, and hold its locks.
    """
    parent, number = parent_process(), os.getppid()

    def watch() -> None:
        if parent is not None:
            # There may be a fork server between the two.
            connection.wait([parent.sentinel])
        while parent is None and os.getppid() == number:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
