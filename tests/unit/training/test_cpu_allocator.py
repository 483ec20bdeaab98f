"""Freed memory is used again."""

import os
import subprocess
import sys

import pytest

# In a process of its own: the setting cannot be taken back.
CODE = """
import resource, sys
from transformer.training.cpu_allocator import keep_freed_memory
took = keep_freed_memory()
def touch():
    block = bytearray(64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = touch()
again = max(touch() for _ in range(3)) - first
print(took, again)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or "CS_GNU_LIBC_VERSION" not in os.confstr_names,
    reason="only glibc has mallopt",
)
def test_freed_memory_is_used_again() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True)
    took, faults = result.stdout.split()
    assert took == b"True"
    # Anew, three times 64 MiB would fault three times 16384 pages of 4 KiB (or 32 huge ones).
    assert int(faults) < 30
