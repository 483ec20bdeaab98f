"""Runs every test with the shapes in the signatures checked."""

import os

# Before torch is imported: tests run side by side, and each is small.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from jaxtyping import install_import_hook

install_import_hook("transformer", "beartype.beartype")
