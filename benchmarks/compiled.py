"""Whether ``trainer.compile=layers`` pays on this CPU, on the batches of Multi30k.

    python -m benchmarks.compiled --data-root FOLDER [--threads 2] [--updates 20] [KEY=VALUE…]

Bare updates (forward, backward, Adam) as the config makes them and with compiled layers, in one
process and in turns, on the same batches; medians of the turns. Compiling is not counted.
"""

import argparse
import json
import statistics
import time
from itertools import islice
from pathlib import Path

import torch

from benchmarks.gpu_steps import BareStep, Bench
from benchmarks.page import markdown
from benchmarks.training_subjects import composed
from transformer.data.batching.batch import Batch
from transformer.tasks.translation import Translation
from transformer.training.optimization.cpu_allocator import keep_freed_memory, keep_products

CASES = {
    "tiny, float32": ["model=tiny", "data.batch_tokens=4096"],
    "tiny, bfloat16": ["model=tiny", "data.batch_tokens=4096", "precision=bf16-mixed"],
    "base, float32": ["model=base", "data.batch_tokens=2048"],
    "base, bfloat16": ["model=base", "data.batch_tokens=2048", "precision=bf16-mixed"],
}
TURNS, WARM_UP = 5, 5
