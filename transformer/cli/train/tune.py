"""``tune``: the weights and the search that do best on validation become the default."""

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial

from transformer.cli.threads import set_threads
from transformer.commands.tune import MissingWeights, tune
from transformer.reports.scores import print_json
from transformer.runs.tuning import Challenge, Trial
from transformer.settings.evaluation import TuneConfig


def run(config: TuneConfig, _: Sequence[str]) -> None:
    """Show a line for each trial, and print all as JSON."""
    tuned = tune(config, partial(_show, first=iter([True])), loaded=set_threads)
    file = tuned.file
    if tuned.is_new:
        print(f"written to {file}, now the default of its run; delete it to undo:", file=sys.stderr)
    else:
        print(
            f"nothing is written: no other is surely better than {file} as it is:", file=sys.stderr
        )
    _show(tuned.tuning.best)
    print_json(json.dumps(tuned.to_json(), indent=1, ensure_ascii=False))


def _show(event: MissingWeights | Trial | Challenge, first: Iterable[bool] = ()) -> None:
    """A line of the table; an iterator with one item puts the header above the first alone."""
    if isinstance(event, MissingWeights):
        print(f"without weights={event.name}: {event.reason}", file=sys.stderr)
        return
    if isinstance(event, Challenge):
        print(event, file=sys.stderr, flush=True)
        return
    search, name = event.search, event.score.name
    penalty = "-" if search.algorithm == "greedy" else f"{search.length_penalty:.2f}"
    for _ in first:
        header = f"weights  algorithm  beam  penalty  {name:>6}  sentences  seconds  sentences/s"
        print(header, file=sys.stderr)
    print(
        f"{event.weights:7}  {search.algorithm:9}  {search.beam_size:4}  {penalty:>7}  "
        f"{event.score.value:{max(6, len(name))}.2f}  {event.sentences:9,}  {event.seconds:7.1f}  "
        f"{event.sentences_per_second:11.1f}",
        file=sys.stderr,
        flush=True,
    )
