"""What training changes in its process, and restores."""

import logging
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch.fx.experimental import _config as shape_settings

_VARIABLES = (
    "PL_GLOBAL_SEED",
    "PL_SEED_WORKERS",
    "TORCHINDUCTOR_CACHE_DIR",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
)
"""Environment variables of seeds, of the cache of compiled layers, and of Lightning's processes."""


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Restore the process after a block that trains.

    Restored are random states, warning filters, levels of Lightning's loggers, the precision of
    torch's float32 products, its way of compiling shapes, and environment variables. Like the
    random states, the filters are those of all threads: train in one thread at a time.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices))
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        stack.enter_context(warnings.catch_warnings())
        for name in ("pytorch_lightning", "lightning_fabric"):
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        stack.callback(setattr, shape_settings, "use_duck_shape", shape_settings.use_duck_shape)
        for name in _VARIABLES:
            stack.callback(_set_variable, name, os.environ.get(name))
        yield


def _set_variable(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
