"""Tells glibc and oneDNN to keep what a training step will want again.

By default glibc returns blocks of several megabytes to the kernel and asks for them again a step
later, and the kernel zeroes every page anew; and oneDNN forgets how to multiply what has a shape
that it has not seen for a while. It knows nothing of models.
"""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1

_CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
_SHAPES = 8192


def keep_freed_memory() -> bool:
    """Serve large blocks from the heap and never shrink it; True where that took effect.

    See ``man 3 mallopt``; elsewhere than on Linux with glibc it does nothing.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))


def keep_products() -> None:
    """Let oneDNN keep the programs that it writes for products of so many shapes, not of 1,024.

    It takes a millisecond to write one for a processor with matrix units, and batches of many
    lengths have more shapes than that. At a width of 512 they take gigabytes in all
    (docs/performance.md). To be called before the first product; a value that the environment
    has stays.
    """
    os.environ.setdefault(_CAPACITY, str(_SHAPES))
