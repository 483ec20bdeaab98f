"""``run.json``, for reports: command, versions, hardware and times of each start; sizes."""

import json
import os
import platform
import subprocess
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from transformer.common.files import PACKAGE, read_json, write_text_whole
from transformer.common.processes import command_line

if TYPE_CHECKING:  # reports read the file without Lightning, whose import takes seconds
    from pytorch_lightning import Trainer

    from transformer.data.datamodules.base import BatchModule

RECORD = "run.json"

_PACKAGES = (
    *("transformer", "torch", "pytorch-lightning", "sentencepiece", "sacrebleu"),
    *("hydra-core", "numpy"),
)


def read_record(folder: Path) -> dict[str, Any]:
    """The values of the file; of a run without one, or with a damaged one, ``starts`` is empty."""
    values = read_json(folder / RECORD)
    return {"starts": [], **(values if isinstance(values, dict) else {})}


def record_start(folder: Path, trainer: "Trainer") -> None:
    """Add a start of training, and describe model and data."""
    data: BatchModule = trainer.datamodule  # type: ignore[attr-defined]
    start = {
        "command": command_line(),
        "started": _now(),
        "from_update": trainer.global_step,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in _PACKAGES},
        "commit": commit(),
        "hardware": _hardware(trainer),
    }
    sizes = {
        "parameters": sum(one.numel() for one in trainer.lightning_module.parameters()),
        "vocabulary": {
            "source": data.tokenizer.source_vocab_size,
            "target": data.tokenizer.target_vocab_size,
        },
        "lengths": {
            name: [np.bincount(lengths).tolist() for lengths in sides]
            for name, sides in data.lengths().items()
        },
    }
    _write(folder, {"starts": [*read_record(folder)["starts"], start], **sizes})


def record_end(folder: Path, reason: str) -> None:
    """Add the end of the last start, after its tests."""
    values = read_record(folder)
    if starts := values["starts"]:  # else somebody has deleted the file
        starts[-1] |= {"ended": _now(), "reason": reason}
        _write(folder, values)


def commit() -> str | None:
    """The commit of this code, with ``-dirty`` after a change; None outside of a git checkout."""
    git = ["git", "-C", str(PACKAGE)]
    quiet: Any = {"capture_output": True, "check": True, "text": True, "timeout": 10}
    try:
        # The package may be installed inside of a checkout of something else.
        subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], **quiet)
        name = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(name, **quiet).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _hardware(trainer: "Trainer") -> dict[str, Any]:
    device, info = trainer.strategy.root_device, Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return {
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "processor": next(names, platform.machine()),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "processes": trainer.world_size,
        "system": platform.platform(),
    }


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _write(folder: Path, values: dict[str, Any]) -> None:
    write_text_whole(folder / RECORD, json.dumps(values, ensure_ascii=False) + "\n")
