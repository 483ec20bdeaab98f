"""Checks that a run of 2N updates equals one of N, a restart in a new process and N more."""

import copy
import csv
import hashlib
import math
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils._pytree import keystr, tree_leaves_with_path

from transformer.common.errors import InputError
from transformer.common.own_code import import_code
from transformer.data.corpora.trust import named_classes
from transformer.model.checkpoint.checkpoint import find_last
from transformer.runs.train import fit
from transformer.tasks.translation import TranslateValidation
from transformer.training.config import run_config

_COMPARED = (
    *("global_step", "state_dict", "current_model_state", "averaging_state", "optimizer_states"),
    *("lr_schedulers", "callbacks", "recovery", "measured"),
)
"""Keys of a checkpoint that hold the state of training."""

_SENTENCES = 8
_TOLERANCE = 1e-3
"""Maximum difference on devices other than a CPU, which may add in any order."""


def check_resume(values: Mapping[str, Any], folder: Path, updates: int) -> str:
    """Train twice, 2 ``updates`` each, and return what is equal; InputError for a difference."""
    devices = values["trainer"]["devices"]
    if updates < 1 or values["checkpoint"] is not None or devices not in (1, "1"):
        raise InputError(
            f"resume_check={updates} must be at least 1; it trains two new runs of one process: "
            "leave checkpoint out and set trainer.devices=1"
        )
    once, broken = folder / "at_once", folder / "broken"
    if once.exists() or broken.exists():
        raise InputError(f"{folder} holds an earlier check; choose another hydra.run.dir")
    _run(_part(values, updates, None), once)
    _run(_part(values, updates, None), broken, until=updates)
    _run(_part(values, updates, broken), broken)
    one, other = _results(once), _results(broken)
    found = [each for key in one for each in differences(one[key], other[key], key)]
    tolerance = 0.0 if values["trainer"]["accelerator"] == "cpu" else _TOLERANCE
    far = [f"{where} by {size:.3g}" for where, size in found if not size <= tolerance]
    weights = sum(tensor.numel() for tensor in one["state_dict"].values())
    counted = f"{2 * updates} updates at once, and {updates}, a restart and {updates} more"
    if far:
        raise InputError(f"resume_check: {counted} differ in {len(far)} places, first {far[0]}")
    exactly = f"to within {max(size for _, size in found):g}" if found else "bit for bit"
    return (
        f"resume_check: {counted} are equal: batches, metrics, and {exactly} "
        f"{weights:,} weights and the optimiser"
    )


def _results(folder: Path) -> dict[str, Any]:
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row.pop("train/tokens_per_second", None)
    payload = find_last(folder)[1]
    state = {key: payload.get(key) for key in _COMPARED}
    return {"batches": (folder / "batches").read_text(), "metrics": rows, **state}


def _part(values: Mapping[str, Any], updates: int, checkpoint: Path | None) -> dict[str, Any]:
    part: dict[str, Any] = copy.deepcopy(dict(values))
    part["checkpoint"] = None if checkpoint is None else str(checkpoint)
    # No validation at the restart: the check shows that none is repeated or skipped.
    interval = max(1, 2 * updates // 3)
    part["trainer"] |= {"max_steps": 2 * updates, "max_epochs": -1, "max_time": None}
    part["trainer"] |= {"val_check_interval": interval, "log_every_n_steps": interval}
    part["trainer"] |= {"limit_val_batches": 1}
    if part["schedule"].get("total") == -1:
        part["schedule"]["total"] = 2 * updates
    part["logger"] |= {"csv": True, "tensorboard": False}
    return part


def _run(part: dict[str, Any], folder: Path, until: int | None = None) -> None:
    # Data is loaded as in a run of the user.
    method = multiprocessing.get_start_method(), True
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, multiprocessing.set_start_method, method) as process:
        try:
            process.submit(_train, part, folder, until).result()
        except BrokenProcessPool as error:
            raise InputError("resume_check: one of its runs was killed") from error


def _train(part: dict[str, Any], folder: Path, until: int | None) -> None:
    import_code(named_classes(part))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    on_cpu = part["trainer"]["accelerator"] == "cpu"
    torch.use_deterministic_algorithms(True, warn_only=on_cpu)
    try:
        fit(run_config(part), folder, [_Recorder(folder / "batches", until)])
    except RuntimeError as error:
        operation, found, _ = str(error).partition(" does not have a deterministic implementation")
        if not found:
            raise
        raise InputError(
            f"resume_check: {operation} is not deterministic on this device, so that no two runs "
            "are equal; check with trainer=cpu"
        ) from error


class _Recorder(Callback):
    """Records a digest of every batch, shortens validation, and stops the run as a signal does."""

    def __init__(self, file: Path, until: int | None) -> None:
        self.file, self.until = file, until

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, TranslateValidation):
                callback.sources = callback.sources[:_SENTENCES]
                callback.references = callback.references[:_SENTENCES]
                callback.ranges = {}

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.until:
            trainer.should_stop = True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        content = [
            (name, value.tolist() if isinstance(value, Tensor) else value)
            for micro in batch.batches
            for name, value in sorted(vars(micro).items())
        ]
        digest = hashlib.sha256(repr((batch.numbers, content)).encode()).hexdigest()
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(f"{trainer.global_step} {digest}\n")


def differences(one: Any, other: Any, where: str) -> Iterator[tuple[str, float]]:
    """The leaves in which two nested values differ, and by how much: infinity if not comparable."""
    left, right = dict(tree_leaves_with_path(one)), dict(tree_leaves_with_path(other))
    for path in left | right:
        both = path in left and path in right
        if size := _distance(left[path], right[path]) if both else math.inf:
            yield where + keystr(path), size


def _distance(one: Any, other: Any) -> float:
    """The largest distance of two elements; NaN equals NaN and nothing else."""
    try:
        a, b = (
            value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
            for value in (one, other)
        )
    except (TypeError, ValueError):
        return 0.0 if one == other else math.inf
    if a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    if torch.equal(a, b):
        return 0.0
    same = (a == b) | (a.isnan() & b.isnan())
    distances = (a.double() - b.double()).abs().masked_fill(same, 0.0)
    return distances.nan_to_num(nan=math.inf, posinf=math.inf).max().item()
