"""The summary of a sweep: a table of its trials, best first, and the same as ``sweep.json``."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

if TYPE_CHECKING:
    from transformer.training.callbacks.sweep_objective import Objective

TRIAL = "trial.json"
"""In the run directory: a trial may be trained by another process, such as a job of SLURM."""

_FIELDS = ("run", "objective", "direction", "value", "overrides")

SWEEP = "sweep.json"

_FOLDERS: dict[Path, dict[Path, int]] = {}
"""The sweep of this process, if any, with the trials of earlier sweeps there and their times."""


class NoteFolder(Callback):
    """Records the folder of a sweep, whose name may hold the time (``hydra.callbacks``)."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        _FOLDERS[folder] = {file: file.stat().st_mtime_ns for file in folder.rglob(TRIAL)}


def save_trial(folder: Path, objective: "Objective", overrides: Sequence[str]) -> None:
    """Write the result of a trial into its run directory."""
    from transformer.report.scores import write_whole

    assert objective.best is not None
    best = None if math.isnan(objective.best) else objective.best
    found = (str(folder), objective.metric, objective.direction, best, list(overrides))
    trial = json.dumps(dict(zip(_FIELDS, found, strict=True)), ensure_ascii=False)
    write_whole(folder / TRIAL, trial + "\n")


@contextmanager
def summarised() -> Iterator[None]:
    """Show the trials of a sweep when it ends, also after an error."""
    _FOLDERS.clear()
    try:
        yield
    finally:
        for folder, before in _FOLDERS.items():
            if trials := list(_new_trials(folder, before)):
                _show(folder, ranked(trials))


def _new_trials(folder: Path, before: Mapping[Path, int]) -> Iterator[dict[str, Any]]:
    for file in folder.rglob(TRIAL):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if file.stat().st_mtime_ns != before.get(file):
                trial = json.loads(file.read_text("utf-8"))
                yield {name: trial[name] for name in _FIELDS}


def ranked(trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Best first, diverged last; each with only the arguments that not all trials have."""
    common = set.intersection(*(set(trial["overrides"]) for trial in trials))

    def key(trial: dict[str, Any]) -> tuple[bool, float, str]:
        sign = 1 if trial["direction"] == "minimize" else -1
        return trial["value"] is None, sign * (trial["value"] or 0.0), trial["run"]

    differing = (
        trial | {"overrides": [one for one in trial["overrides"] if one not in common]}
        for trial in trials
    )
    return sorted(differing, key=key)


def _show(folder: Path, trials: Sequence[dict[str, Any]]) -> None:
    from transformer.report.scores import build_table, table_console, write_whole

    write_whole(folder / SWEEP, json.dumps(trials, indent=1, ensure_ascii=False) + "\n")
    rows = []
    for rank, trial in enumerate(trials):
        value = "nan" if trial["value"] is None else f"{trial['value']:.4f}"
        mark = "best" if rank == 0 and trial["value"] is not None else ""
        rows.append((value, mark, trial["run"], " ".join(trial["overrides"])))
    header = (trials[0]["objective"], "", "run directory", "overrides")
    table_console().print(build_table(str(folder), header, rows, right=()))
