"""Tells glibc to keep the memory that a training step frees.

By default glibc returns blocks of several megabytes to the kernel and asks for them again a step
later, and the kernel zeroes every page anew. It knows nothing of torch; elsewhere than on Linux
with glibc it does nothing.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Serve large blocks from the heap and never shrink it; True where that took effect.

    See ``man 3 mallopt``.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))
