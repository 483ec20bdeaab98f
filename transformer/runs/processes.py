"""The processes of a run on several devices: one a device, each ``transformer train``.

It imports neither torch nor Lightning until it starts them.
"""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from transformer.common.files import read_json
from transformer.runs.resume import check_no_other_run
from transformer.settings.run import RunConfig, plain_values, run_config
from transformer.settings.training import TrainerConfig
from transformer.training.distributed.launcher import count_devices, run_ranks
from transformer.training.distributed.ranks import external_rank


class RankCall(NamedTuple):
    """The arguments of a process of a run; rank 0 writes the metrics to a file, if one is named."""

    config: RunConfig
    folder: Path
    objective: str | None = None
    fit_vocabulary: bool = False
    metrics: Path | None = None

    def to_json(self) -> str:
        """A text, for the environment or the store of the processes."""
        return json.dumps(
            [
                plain_values(self.config),
                str(self.folder.absolute()),
                self.objective,
                self.fit_vocabulary,
                None if self.metrics is None else str(self.metrics),
            ]
        )

    @classmethod
    def from_json(cls, text: str) -> "RankCall":
        """Read what ``to_json`` writes."""
        values, folder, objective, fit_vocabulary, metrics = json.loads(text)
        return cls(
            run_config(values),
            Path(folder),
            objective,
            fit_vocabulary,
            None if metrics is None else Path(metrics),
        )


def count_processes(trainer: TrainerConfig) -> int:
    """How many processes are to be started for a run; 1: it trains in this one."""
    # torchrun with one process sets no rank, but has chosen the number.
    started = external_rank() is not None or "TORCHELASTIC_RUN_ID" in os.environ
    return 1 if started or trainer.num_nodes > 1 else count_devices(trainer)


def train_in_processes(
    count: int,
    config: RunConfig,
    folder: Path,
    objective: str | None = None,
    *,
    fit_vocabulary: bool = False,
) -> dict[str, float]:
    """Train in so many new processes, and return the values that ``train`` of rank 0 returns.

    They show their errors and their log on stderr. Raises InputError if the folder holds another
    run, and AnotherRankFailed if a process fails.
    """
    if config.checkpoint is None:
        check_no_other_run(folder, sweeps=objective is not None)
    with TemporaryDirectory() as temporary:
        metrics = Path(temporary, "metrics.json")
        run_ranks(count, RankCall(config, folder, objective, fit_vocabulary, metrics).to_json())
        values: dict[str, float] = read_json(metrics) or {}
        return values
