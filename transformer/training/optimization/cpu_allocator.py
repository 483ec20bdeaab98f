"""How much freed memory glibc keeps, and how many compiled products oneDNN.

By default glibc returns large blocks to the kernel, and oneDNN keeps the programs of 1,024 shapes.
"""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Never shrink the heap (``man 3 mallopt``); returns whether it took effect, as with glibc."""
    return _mallopt(_M_MMAP_MAX, 0) and _mallopt(_M_TRIM_THRESHOLD, _NEVER)


def return_freed_memory() -> bool:
    """Give large freed blocks back to the kernel at once; returns whether it took effect.

    It also bounds the programs of oneDNN; call it before the first product.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    return _mallopt(_M_MMAP_THRESHOLD, 2**20) and _mallopt(_M_TRIM_THRESHOLD, 2**20)


def _mallopt(option: int, value: int) -> bool:
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    mallopt = getattr(libc, "mallopt", lambda option, value: 0)
    return bool(mallopt(option, value))


def keep_products() -> None:
    """Let oneDNN keep the programs for products of 8,192 shapes; call it before the first product.

    Compiling one takes a millisecond on a processor with matrix units (docs/performance.md).
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
