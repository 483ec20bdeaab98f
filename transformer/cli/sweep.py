"""What a sweep ends with: a table of its trials, best first, and the same as ``sweep.json``.

It does not know how a trial trains, nor which trials come next.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

if TYPE_CHECKING:
    from transformer.training.objective import Objective

TRIAL = "trial.json"
"""In the run directory: a trial may be trained by another process, such as a job of SLURM."""

SWEEP = "sweep.json"
"""In the folder of the sweep."""

_FOLDERS: list[Path] = []
"""Of the sweeps that this process has begun: one, or none."""


class NoteFolder(Callback):
    """Notes the folder when a sweep begins: its name may hold the time (``hydra.callbacks``)."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Resolve it; Hydra calls this."""
        _FOLDERS.append(Path(config.hydra.sweep.dir))


def save_trial(folder: Path, objective: "Objective", overrides: Sequence[str]) -> None:
    """Write what a trial has found into its run directory."""
    from transformer.evaluation.report import write_whole

    value = objective.best
    assert value is not None
    found = {
        "run": str(folder),
        "objective": objective.metric,
        "direction": objective.direction,
        "value": None if math.isnan(value) else value,
        "overrides": list(overrides),
    }
    write_whole(folder / TRIAL, json.dumps(found, ensure_ascii=False) + "\n")


@contextmanager
def summarised() -> Iterator[None]:
    """If a sweep begins within, show its trials when it ends, also where one of them has failed."""
    _FOLDERS.clear()
    try:
        yield
    finally:
        for folder in _FOLDERS:
            trials = [json.loads(file.read_text("utf-8")) for file in folder.glob(f"*/{TRIAL}")]
            if trials:
                _show(folder, ranked(trials))


def ranked(trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The best first, those that diverged last; each with only what not all were called with."""
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
    from rich.table import Table
    from rich.text import Text

    from transformer.evaluation.report import table_console, write_whole

    write_whole(folder / SWEEP, json.dumps(trials, indent=1, ensure_ascii=False) + "\n")
    table = Table(title=Text(f"{folder}"), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in (trials[0]["objective"], "", "run directory", "overrides"):
        table.add_column(column)
    for rank, trial in enumerate(trials):
        value = "nan" if trial["value"] is None else f"{trial['value']:.4f}"
        mark = "best" if rank == 0 and trial["value"] is not None else ""
        table.add_row(value, mark, Text(trial["run"]), Text(" ".join(trial["overrides"])))
    table_console().print(table)
