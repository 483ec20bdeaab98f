"""Makes glibc keep freed memory and oneDNN keep its compiled products.

By default glibc returns large blocks to the kernel and requests them again in the next step, and
the kernel zeroes every page; and oneDNN keeps the programs of 1,024 shapes only.
"""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Serve large blocks from the heap and never shrink it; returns whether it took effect.

    See ``man 3 mallopt``. Without glibc on Linux it has no effect.
    """
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    mallopt = getattr(libc, "mallopt", lambda option, value: 0)
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))


def keep_products() -> None:
    """Let oneDNN keep the programs for products of 8,192 shapes.

    To compile one takes a millisecond on a processor with matrix units, and batches have more than
    1,024 shapes. At a width of 512 the programs take gigabytes (docs/performance.md). Call it
    before the first product; it does not override the environment.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
