"""The jobs of a sweep: their overrides and scores, recorded one by one and shown at its end."""

import json
import math
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig

from transformer.cli.arguments import config_folder, parse_override, search_path
from transformer.common.errors import InputError, Interrupted
from transformer.common.files import read_json, written_whole

JOBS = "jobs"
"""Folder of a sweep's directory: one file of JSON a job, ``NUMBER.json``."""


def sweep_directory(overrides: Sequence[str]) -> Path:
    """The directory of a sweep; InputError if ``launch=optuna`` is given nothing to search."""
    fixed = [
        override
        for override in overrides
        if not parse_override(override, sweeps=None).is_sweep_override()
    ]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("train", [*fixed, *search_path()], return_hydra_config=True)
    # ${hydra:...} in the name of the directory.
    HydraConfig.instance().set_config(config)
    sweeper = config.hydra.sweeper
    if len(fixed) == len(overrides) and "optuna" in sweeper._target_ and not sweeper.params:
        raise InputError(
            "launch=optuna is given nothing to search; name keys and their ranges, such as "
            "'optimizer.lr=tag(log,interval(5e-4,1e-2))' 'model.dropout=interval(0,0.3)'"
        )
    return Path(config.hydra.sweep.dir)


def directory_override(folder: Path) -> str:
    """The override that gives a sweep this directory."""
    from transformer.recipes.overrides import override

    return override("hydra.sweep.dir", str(folder))


@contextmanager
def recorded(job: Any) -> Iterator[dict[str, Any]]:
    """Write what the caller adds to the record of a job, or its error, when the job ends.

    ``job`` is what ``HydraConfig.get()`` gives in the job.
    """
    task = list(job.overrides.task)
    values = dict(override.partition("=")[::2] for override in task)
    record = {"job": job.job.num, "overrides": values, "folder": job.runtime.output_dir}
    try:
        yield record
    except Interrupted as stop:
        record["error"] = "stopped"
        # Hydra would begin the next job; SLURM starts this one again.
        if "submitit" in job.launcher._target_:
            raise
        print(stop, file=sys.stderr)
        raise SystemExit(stop.code) from stop
    except BaseException as error:  # Ctrl-C before the training, too
        record["error"] = str(error) or type(error).__name__
        # A search goes on after a trial that failed (conf/launch/optuna.yaml); a bug ends it.
        is_bug = isinstance(error, Exception) and not isinstance(error, InputError)
        if is_bug and "optuna" in job.sweeper._target_:
            traceback.print_exception(error)
            raise SystemExit(1) from error
        raise
    finally:
        file = Path(job.sweep.dir) / JOBS / f"{job.job.num}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as part:
            part.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")


def read_jobs(folder: Path) -> list[dict[str, Any]]:
    """The records of the jobs of a sweep."""
    jobs = [read_json(file) or {} for file in (folder / JOBS).glob("*.json")]
    return sorted(jobs, key=lambda job: job["job"])


def show_jobs(folder: Path) -> None:
    """Print a table of the jobs of a sweep on stderr: the keys that differ, score and folder."""
    from transformer.reports.scores import build_table, table_console

    jobs = read_jobs(folder)
    if not jobs:
        return
    keys = dict.fromkeys(key for job in jobs for key in job["overrides"])
    varied = [key for key in keys if len({job["overrides"].get(key) for job in jobs}) > 1]
    scored = [job for job in jobs if "score" in job]
    metrics = {(job["metric"], job["better"]) for job in scored}
    several = len(metrics) > 1
    rows = []
    for job in jobs:
        score = f"{job['score']:.4f}" if "score" in job else "-"
        where = job.get("error") or os.path.relpath(job["folder"])
        values = [_short(job["overrides"].get(key, "")) for key in varied]
        if several:
            values.append(job.get("metric", "-"))
        rows.append((str(job["job"]), *values, score, where))
    title = f"{folder}: {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}"
    names = ["metric", "score"] if several else ["score"]
    # Scores of several metrics cannot be compared.
    if len(metrics) == 1:
        [(metric, better)] = metrics
        names = [metric]
        choose = max if better == "higher" else min
        numbers = [job for job in scored if not math.isnan(job["score"])]
        best = choose(numbers or scored, key=lambda job: job["score"])
        title += f", best {best['job']} ({metric} {best['score']:.4f})"
    header = ("job", *varied, *names, "folder")
    table_console().print(build_table(title, header, rows, right=range(len(header) - 1)))


def _short(value: str) -> str:
    """A number with four digits, as optuna draws them with seventeen; other text as it is."""
    try:
        return format(float(value), ".4g") if len(value) > 8 else value
    except ValueError:
        return value
