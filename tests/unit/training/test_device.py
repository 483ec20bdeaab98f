"""The precision of a run, and what the allocator and oneDNN keep."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from transformer.training.device import keep_freed_memory, resolve_precision, search_autocast
from transformer.training.trainer_config import TrainerConfig


@pytest.mark.parametrize(
    ("precision", "accelerator", "has_bfloat16", "resolved", "products"),
    [
        ("auto", "gpu", True, "bf16-mixed", "high"),
        ("auto", "gpu", False, "32-true", "high"),
        ("auto", "cpu", True, "bf16-mixed", "highest"),
        ("auto", "cpu", False, "32-true", "highest"),
        ("auto", "cpu", None, "32-true", "highest"),
        ("auto", "auto", True, "bf16-mixed", "highest"),
        ("auto", "mps", True, "32-true", "highest"),
        ("32-true", "gpu", True, "32-true", "highest"),
    ],
)
def test_auto_is_the_fastest_of_the_device(
    *,
    precision: str,
    accelerator: str,
    has_bfloat16: bool | None,
    resolved: str,
    products: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: accelerator == "gpu")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    known = {} if has_bfloat16 is None else {"avx2": True, "avx512_bf16": has_bfloat16}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    try:
        given = TrainerConfig(precision=precision, accelerator=accelerator)
        assert resolve_precision(given) == replace(given, precision=resolved)
        assert torch.get_float32_matmul_precision() == products
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_search_on_a_gpu_is_as_precise_as_training(
    precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a GPU torch would refuse it.
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    with search_autocast(precision, torch.device(device)):
        narrow = torch.is_autocast_enabled(device)
    assert narrow == ((precision, device) == ("bf16-mixed", "cuda"))


# In a process of its own: the setting cannot be taken back.
CODE = """
import resource, sys
from transformer.training.device import keep_freed_memory
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
from transformer.training.device import keep_products
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
