"""Settings of glibc's freed memory, and of oneDNN's cache of compiled products."""

import ctypes
import os
import sys

# Options of mallopt.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Never shrink the heap (``man 3 mallopt``); returns whether it took effect, as with glibc."""
    return _mallopt(_M_MMAP_MAX, 0) and _mallopt(_M_TRIM_THRESHOLD, _NEVER)


def return_freed_memory() -> bool:
    """Give freed blocks back to the kernel at once; call it before the first product."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    return _mallopt(_M_MMAP_THRESHOLD, 2**20) and _mallopt(_M_TRIM_THRESHOLD, 2**20)


def _mallopt(option: int, value: int) -> bool:
    """Set an option of glibc; False where there is none."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    return hasattr(libc, "mallopt") and bool(libc.mallopt(option, value))


def keep_products() -> None:
    """Let oneDNN keep the programs for 8,192 shapes; call it before the first product."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
