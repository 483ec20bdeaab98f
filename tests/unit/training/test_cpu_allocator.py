"""Freed memory is used again, and products of oneDNN are remembered."""

import os
import subprocess
import sys

import pytest

from transformer.training.cpu_allocator import keep_freed_memory

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


def test_elsewhere_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False


# More shapes than oneDNN remembers by itself, then one of the first again.
SHAPES = """
import torch
from transformer.training.cpu_allocator import keep_products
keep_products()
right = torch.randn(64, 64).to(torch.bfloat16)
for rows in [*range(33, 1133), 40]:
    torch.randn(rows, 64).to(torch.bfloat16) @ right
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("capacity", "found"), [(None, "cache_hit"), ("100", "cache_miss")])
def test_products_of_many_shapes_are_remembered(capacity: str | None, found: str) -> None:
    environment = os.environ | {"ONEDNN_VERBOSE": "profile_create"}
    environment.pop("ONEDNN_PRIMITIVE_CACHE_CAPACITY", None)
    if capacity is not None:
        environment["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = capacity
    result = subprocess.run(
        [sys.executable, "-c", SHAPES], check=True, capture_output=True, text=True, env=environment
    )
    created = [line for line in result.stdout.splitlines() if ",create:" in line]
    if not created:
        pytest.skip("this processor does not multiply bfloat16 by oneDNN")
    assert f"create:{found}" in created[-1]
