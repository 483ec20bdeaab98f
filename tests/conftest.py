"""Runs every test with the shapes and types in the signatures checked."""

import gc
import os
import platform
from collections.abc import Iterator
from unittest import mock

# Before torch is imported: tests run side by side, and each is small.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# In int8 CTranslate2 overflows by oneDNN, which it takes on AMD, if the processor has no VNNI.
if platform.machine() == "x86_64":
    os.environ.setdefault("CT2_USE_MKL", "1")
# Tests read the text of their own runs, which lies in temporary folders.
os.environ["TRANSFORMER_TRUST"] = "true"

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from tests.helpers.checks import no_checks

# Imports and collection leave nearly no garbage; to look for it there takes seconds.
gc.disable()
install_import_hook("transformer", "beartype.beartype")

# The same code passes or fails alike each time, on a busy machine too; other examples by
# --hypothesis-profile=default.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Leave what is imported out of every later collection of garbage, half a second each."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore the environment after each test; Lightning writes the address of a cluster there."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No shapes are checked: what torch traces, it traces checks included."""
    with no_checks():
        yield
