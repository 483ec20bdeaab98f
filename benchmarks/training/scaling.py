"""What ranks send and read, counted on this machine; the efficiency of many GPUs, derived.

    python -m benchmarks.training.scaling count [--steps 6] [--work runs/scaling]
    python -m benchmarks.training.scaling derive

*count* trains the same updates with 1, 2, 4 and 8 processes of gloo, on eight micro-batches each,
with dropout. A run that is finished is not repeated. *derive* builds the models base and big in
this process, lets DistributedDataParallel divide their gradients into buckets, and puts their sizes
into the formulas of README.md.
"""

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning import Callback, Trainer
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.gpu.cost import GPUS_A_MACHINE, Assumptions
from benchmarks.support.records import markdown
from benchmarks.training.processes import DDP, ROOT, SETTINGS
from transformer.checkpoint.checkpoint import find_last
from transformer.checkpoint.run_directory import is_finished
from transformer.cli.config import compose_config, run_settings
from transformer.model.build import build_transformer
from transformer.training import checkpointing as checkpoints

RANKS = (1, 2, 4, 8)
MICRO_BATCHES = 8
BACKWARD = 2 / 3
"""Of the time of an update, in which gradients can be sent."""
NVLINK_STEP, NETWORK_STEP = 3.4e-6, 14e-6
"""Seconds of a step of a ring, by NCCL's own model (src/graph/tuning.cc, protocol Simple)."""
BYTES_ACKED = 120
"""Offset in Linux' ``struct tcp_info`` of the count of bytes that the other side has received."""


class Collectives(TorchDispatchMode):
    """Counts the collectives of this process by kind, and the bytes of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        """Count an operator of c10d, before it is called."""
        if operator.namespace == "c10d":
            kind = operator.name().removeprefix("c10d::").rstrip("_")
            tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
            size = sum(tensor.nbytes for tensor in tensors)
            self.sizes.append(size)
            self.counted.update({kind: 1, f"bytes of {kind}": size})
        return operator(*arguments, **(options or {}))


class Counted(Callback):
    """Counts, by what a rank is doing, its collectives and the bytes that it sends by TCP.

    The counts of a rank are in ``counted-RANK.json`` of the run.
    """

    def __init__(self) -> None:
        self.collectives = Collectives()
        self.phases: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.phases["start"]["times"] = 1
        self._phase = "start"
        self._before = Counter[str]()
        self._read = Counter[str]()

    def setup(self, trainer: Trainer, pl_module: object, stage: str) -> None:
        """Count from before the weights are sent."""
        self.collectives.__enter__()
        checkpoints.save = partial(self._save, checkpoints.save)  # type: ignore[assignment]

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: object, batch: Any, batch_idx: int
    ) -> None:
        """Count the first two updates apart: between them, torch forms the buckets anew."""
        self._begin("update" if batch_idx > 1 else "first updates")
        pairs = sum(len(one.source) for one in batch.batches)
        self._read.update({"micro-batches": len(batch.batches), "pairs": pairs})

    def on_train_batch_end(self, *_: object) -> None:
        self._begin("log")

    def on_validation_start(self, *_: object) -> None:
        self._begin("validation")

    def on_validation_end(self, *_: object) -> None:
        self._begin("log")

    def on_fit_end(self, trainer: Trainer, pl_module: object) -> None:
        """Write the counts."""
        self._begin("end")
        self.collectives.__exit__(None, None, None)
        read = self._read | {"mapped KiB": mapped_kib(".arrow")}
        file = Path(trainer.default_root_dir) / f"counted-{trainer.global_rank}.json"
        file.write_text(json.dumps({**self.phases, "read": read}))

    def _save(self, save: Callable[..., object], *arguments: Any, **options: Any) -> object:
        phase = self._phase
        self._begin("checkpoint")
        error = save(*arguments, **options)
        self._begin(phase)
        # It goes on with that phase.
        self.phases[phase]["times"] -= 1
        return error

    def _begin(self, phase: str) -> None:
        now = self.collectives.counted + Counter({"sent": sent_bytes()})
        self.phases[self._phase].update(now - self._before)
        self.phases[phase]["times"] += 1
        self._phase = phase
        self._before = now


def sent_bytes() -> int:
    """Bytes that other processes have received from this one over its open TCP connections."""
    total = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            connection = socket.socket(fileno=int(descriptor))
        except OSError:
            continue
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            total += struct.unpack_from("Q", info, BYTES_ACKED)[0]
        except OSError:  # not of TCP
            pass
        finally:
            connection.detach()
    return total


def mapped_kib(suffix: str) -> int:
    """Size of the files with this suffix that this process has mapped."""
    size = 0
    counts = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(" ")
        if not name.endswith(":"):
            counts = value.endswith(suffix)
        elif counts and name == "Size:":
            size += int(value.split()[0])
    return size


def train(ranks: int, folder: Path, steps: int, more: Sequence[str] = ()) -> None:
    """Train with so many processes, unless that has been done; it must be possible."""
    if is_finished(folder):
        return
    settings = [*SETTINGS, *more, f"trainer.accumulate_grad_batches={MICRO_BATCHES // ranks}"]
    settings += [*DDP, f"trainer.devices={ranks}"] if ranks > 1 else []
    settings += ["data.workers=0", "loss.chunk=512", "precision=32-true", "test=false"]
    # Rounding may flip a ReLU, which changes a gradient by more than rounding.
    settings += ["model.activation=gelu"]
    # A model that has learned nothing ends no sentence.
    settings += ["decoding.max_length_ratio=1", "decoding.max_length_offset=2"]
    settings += [f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps // 2}"]
    settings += ["callbacks.own=[benchmarks.training.scaling:Counted]"]
    call = [sys.executable, "-m", "transformer", "train", *settings]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    call += [f"hydra.run.dir={folder}", "checkpoint=auto"]
    subprocess.run(call, cwd=ROOT, env=environment, check=True)


def counted(folder: Path) -> list[dict[str, dict[str, int]]]:
    """What the ranks of a run have counted, by rank."""
    files = sorted(folder.glob("counted-*.json"))
    return [json.loads(file.read_text()) for file in files]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Those of a run, each once, though several names may share one."""
    state: dict[str, torch.Tensor] = find_last(folder)[1]["state_dict"]
    names = {weight.data_ptr(): name for name, weight in state.items()}
    return {name: state[name] for name in names.values()}


def largest_differences(folder: Path, other: Path) -> tuple[float, float]:
    """Between the weights of two runs: of the biases of keys, and of all others.

    The gradient of such a bias is 0 but for rounding, of which Adam makes whole steps.
    """
    one = weights(folder)
    two = weights(other)
    largest = {True: 0.0, False: 0.0}
    for name, weight in one.items():
        of_keys = name.endswith(".key.bias")
        largest[of_keys] = max(largest[of_keys], (weight - two[name]).abs().max().item())
    return largest[True], largest[False]


def collectives(phase: Mapping[str, int]) -> str:
    """What a rank takes part in at each time, with the bytes of the tensors of each kind."""
    times = phase["times"]
    kinds = [name for name in sorted(phase) if phase.get(f"bytes of {name}", 0)]
    sizes = [f"{phase[f'bytes of {kind}'] / times:,.0f}" for kind in kinds]
    numbers = [f"{phase[kind] / times:.2g}" for kind in kinds]
    return ", ".join(
        f"{number} {kind}" + (f" ({size})" if kind != "barrier" else "")
        for number, kind, size in zip(numbers, kinds, sizes, strict=True)
    )


def count_table(folders: Mapping[int, Path]) -> list[str]:
    """What a rank does in runs of 1, 2, … ranks: a column a run."""
    first = folders[1]
    gradients = sum(weight.nbytes for weight in weights(first).values())
    rows: defaultdict[str, list[str]] = defaultdict(list)
    for ranks, folder in folders.items():
        run = counted(folder)
        of_keys, others = largest_differences(first, folder)
        rows["weights: largest difference from 1 rank"].append(f"{others:.1e}")
        rows["the same, of the biases of keys"].append(f"{of_keys:.1e}")
        for name in ("micro-batches", "pairs", "mapped KiB"):
            values = sorted(rank["read"][name] for rank in run)
            ends = dict.fromkeys((values[0], values[-1]))
            rows[f"{name} of a rank"].append(" to ".join(f"{value:,}" for value in ends))
        for phase in ("start", "update", "validation", "checkpoint"):
            sent = sum(rank[phase].get("sent", 0) / rank[phase]["times"] for rank in run)
            rows[f"{phase}: collectives (bytes)"].append(collectives(run[0][phase]) or "none")
            rows[f"{phase}: bytes that a rank sends"].append(f"{sent / ranks:,.0f}")
            if phase == "update":
                formula = 2 * (ranks - 1) / ranks * gradients
                rows["2(*n* − 1)/*n* times the gradients"].append(f"{formula:,.0f}")
    return markdown(["ranks", *map(str, folders)], [[name, *row] for name, row in rows.items()])


def bucket_bytes(name: str, vocabulary: int = 32_000) -> list[int]:
    """Of the buckets in which DistributedDataParallel sends a model's gradients, in their order."""
    config = run_settings(compose_config("train", ["data=files", f"model={name}"])).model
    model = build_transformer(config.sized(vocabulary, vocabulary))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    tokens = torch.full((1, 2), 5)
    for _ in range(2):
        loss = model.logits(parallel(tokens, tokens)).sum()
        with Collectives() as sent:
            loss.backward()
    dist.destroy_process_group()
    assert sum(sent.sizes) == 4 * sum(weight.numel() for weight in model.parameters())
    return sent.sizes


def send_seconds(number: float, gpus: int, rates: Assumptions) -> float:
    """To sum so many bytes over all GPUs, with the latency of every step of the rings."""
    inside = min(gpus, GPUS_A_MACHINE)
    machines = max(1, gpus // GPUS_A_MACHINE)
    latency = 2 * ((inside - 1) * NVLINK_STEP + (machines - 1) * NETWORK_STEP)
    return latency + rates.ring_seconds(number, gpus)


def update_seconds(
    compute: float, buckets: Sequence[int], gpus: int, rates: Assumptions
) -> tuple[float, float]:
    """Of an update where all but the last bucket hide in the backward pass, and where none does."""
    sent = [send_seconds(number, gpus, rates) for number in buckets]
    totals = send_seconds(0, gpus, rates)
    waits = max(sent[-1], sum(sent) - BACKWARD * compute)
    return compute + waits + totals, compute + sum(sent) + totals


def measured_update(name: str) -> tuple[float, float]:
    """Seconds of an update on one GPU, and target tokens a second, by benchmarks/gpu/README.md."""
    page = (ROOT / "benchmarks" / "gpu" / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {name}, compiled | ")]
    tokens, milliseconds = line.split(" | ")[1:3]
    return float(milliseconds) / 1e3, float(tokens.replace(",", ""))


def derived_table() -> list[str]:
    """What many GPUs would do, each with as many tokens an update as one was measured with."""
    rows = []
    for name in ("base", "big"):
        buckets, (compute, speed) = bucket_bytes(name), measured_update(name)
        for gpus, adapters in ((8, 0), (64, 1), (64, 8), (512, 1), (512, 8)):
            rates = Assumptions(adapters=adapters or 1)
            sent = [send_seconds(number, gpus, rates) for number in buckets]
            shares = [compute / time for time in update_seconds(compute, buckets, gpus, rates)]
            figures = [f"{2 * (gpus - 1) / gpus * sum(buckets) / 1e6:,.0f}"]
            figures += [f"{seconds * 1e3:.1f}" for seconds in (sum(sent), sent[-1])]
            figures += [f"{min(shares):.0%} to {max(shares):.0%}"]
            figures += [
                " to ".join(f"{gpus * speed * share / 1e6:.1f}" for share in sorted(shares))
            ]
            rows.append([name, str(gpus), str(adapters or "none"), *figures])
    columns = ["model", "GPUs", "adapters of a machine"]
    columns += [
        f"{column} (*derived*)"
        for column in (
            "MB that a GPU sends",
            "ms to send all buckets",
            "ms to send the last",
            "efficiency",
            "million target tokens/s",
        )
    ]
    return markdown(columns, rows)


def main() -> None:
    """Count or derive, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("count", "derive"))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--work", type=Path, default=Path("runs/scaling"))
    options = parser.parse_args()
    if options.table == "derive":
        print("\n".join(derived_table()))
        return
    folders = {ranks: options.work.resolve() / f"{ranks}-{options.steps}" for ranks in RANKS}
    for ranks, folder in folders.items():
        train(ranks, folder, options.steps)
    print("\n".join(count_table(folders)))


if __name__ == "__main__":
    main()
