"""``average``, ``consolidate``, ``tune``, ``import``, ``export`` and ``push``.

Paths and JSON go to stdout, everything else to stderr. Each command imports its library function
when it runs: no other command takes time for it.
"""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transformer.common.files import HUB
from transformer.settings.commands import (
    AverageConfig,
    ConsolidateConfig,
    ExportConfig,
    ImportConfig,
    PushConfig,
)
from transformer.settings.evaluation import TuneConfig

if TYPE_CHECKING:
    from transformer.commands.tune import MissingWeights
    from transformer.runs.tuning import Challenge, Trial


def run_average(config: AverageConfig, _: Sequence[str]) -> None:
    """Write the mean weights of a run's newest checkpoints, and print the path."""
    from transformer.commands.average import average

    file, averaged = average(config)
    for path in averaged:
        print(f"averaged {path}", file=sys.stderr)
    print(file)


def run_consolidate(config: ConsolidateConfig, _: Sequence[str]) -> None:
    """Join a checkpoint of several files, and print the path."""
    from transformer.commands.consolidate import consolidate

    print(consolidate(config))


def run_import(config: ImportConfig, _: Sequence[str]) -> None:
    """Make a run of a model of another framework, and print its path."""
    from transformer.interchange.import_model import import_model

    print(import_model(config))


def run_export(config: ExportConfig, _: Sequence[str]) -> None:
    """Write a model for another program, and show how it was verified."""
    from transformer.commands.export import export

    exported = export(config)
    print(json.dumps(exported.verified), file=sys.stderr)
    print(exported.folder)


def run_push(config: PushConfig, _: Sequence[str]) -> None:
    """Upload a model with its card to the Hugging Face Hub, and show how it was verified."""
    from transformer.commands.export import push

    pushed = push(config)
    print(json.dumps(pushed.verified), file=sys.stderr)
    if config.dry_run:
        name = config.repo.removeprefix(HUB)
        print(f"dry_run=true: nothing is uploaded to {name}; this is the folder", file=sys.stderr)
    print(pushed.where)


def run_tune(config: TuneConfig, _: Sequence[str]) -> None:
    """Find the weights and the search that do best on validation.

    Shows a line for each trial, and prints all as JSON.
    """
    from transformer.cli.threads import set_threads
    from transformer.commands.tune import tune
    from transformer.reports.scores import print_json

    table = _TrialTable()
    tuned = tune(config, table.show, loaded=set_threads)
    file = tuned.file
    if tuned.is_new:
        print(f"written to {file}, now the default of its run; delete it to undo:", file=sys.stderr)
    else:
        print(
            f"nothing is written: no setting is significantly better than {file} as it is:",
            file=sys.stderr,
        )
    table.print_trial(tuned.tuning.best)
    print_json(json.dumps(tuned.to_json(), indent=1, ensure_ascii=False))


class _TrialTable:
    """A line on stderr for each event of ``tune``; the header stands above the first trial."""

    def __init__(self) -> None:
        self.has_header = False

    def show(self, event: "MissingWeights | Trial | Challenge") -> None:
        from transformer.commands.tune import MissingWeights
        from transformer.runs.tuning import Challenge

        if isinstance(event, MissingWeights):
            print(f"without weights={event.name}: {event.reason}", file=sys.stderr)
        elif isinstance(event, Challenge):
            print(event, file=sys.stderr, flush=True)
        else:
            if not self.has_header:
                columns = "weights  algorithm  beam  penalty"
                metric = f"{event.score.name:>6}"
                print(f"{columns}  {metric}  sentences  seconds  sentences/s", file=sys.stderr)
                self.has_header = True
            self.print_trial(event)

    def print_trial(self, trial: "Trial") -> None:
        """Print a line of the table."""
        search = trial.search
        penalty = "-" if search.algorithm == "greedy" else f"{search.length_penalty:.2f}"
        width = max(6, len(trial.score.name))
        print(
            f"{trial.weights:7}  {search.algorithm:9}  {search.beam_size:4}  {penalty:>7}  "
            f"{trial.score.value:{width}.2f}  {trial.sentences:9,}  {trial.seconds:7.1f}  "
            f"{trial.sentences_per_second:11.1f}",
            file=sys.stderr,
            flush=True,
        )
