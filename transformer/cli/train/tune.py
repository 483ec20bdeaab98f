"""``tune``: the weights and the search that do best on validation become the default."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from omegaconf import DictConfig

from transformer.checkpoint import checkpoint
from transformer.checkpoint.locate import TUNED, find_checkpoint
from transformer.cli.config.compose import resolve_path, resolve_positive, resolve_value
from transformer.cli.evaluate.scored_text import require_trusted, resolve_metrics
from transformer.cli.threads import set_search_threads
from transformer.decoding.device import find_device, suited_batch_tokens
from transformer.report.scores import print_json, require_writable
from transformer.runs import tuning


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Try all, and write the best into a checkpoint."""
    path = resolve_path(config, "checkpoint")
    candidates = _candidates(config, path)
    of_run = checkpoint.portable_part(next(iter(candidates.values()))).config
    require_trusted(config, of_run)
    set_search_threads(next(iter(candidates.values()))["state_dict"].values())
    hints, device = (
        get_type_hints(tuning.SweepConfig),
        find_device(resolve_value(config, "device", str)),
    )
    keys = ("beam_sizes", "length_penalties", "metric", "sentences")
    settings = tuning.SweepConfig(
        **{key: resolve_value(config, key, hints[key]) for key in keys},
        batch_tokens=suited_batch_tokens(resolve_value(config, "batch_tokens", int | None), device),
        device=device,
        scoring=resolve_metrics(config, of_run),
    )
    # The search takes hours; its result is written at its end.
    require_writable(path / "checkpoints" if path.is_dir() else path.parent)
    found = tuning.tune(candidates, settings, partial(_show, first=iter([True])))
    best, before = found.best, found.trials[0]
    file = find_checkpoint(path)
    if best is before and (path == file or file.stem != TUNED):
        print(
            f"nothing is written: no other is surely better than {file} as it is:", file=sys.stderr
        )
    else:
        # A file keeps all that training needs to resume from it.
        payload = candidates[best.weights] if path.is_dir() else checkpoint.read_payload(path)
        file = path / "checkpoints" / f"{TUNED}.ckpt" if path.is_dir() else path
        checkpoint.write_payload(tuning.with_search(payload, best.search), file)
        print(f"written to {file}, now the default of its run; delete it to undo:", file=sys.stderr)
    _show(best)
    report = {
        "checkpoint": str(file),
        "best": best.to_json(),
        "before": before.to_json(),
        "trials": [trial.to_json() for trial in found.trials],
        "tests": [challenge.to_json() for challenge in found.challenges],
    }
    print_json(json.dumps(report, indent=1, ensure_ascii=False))


def _candidates(config: DictConfig, path: Path) -> Mapping[str, dict[str, Any]]:
    """The payloads with the weights to compare: of a run directory several, of a file its own."""
    if not path.is_dir():
        file = find_checkpoint(path)
        payload = checkpoint.read_merged(file)
        checkpoint.require_translation(payload, file)
        return {"own": tuning.translating(payload)}
    names = resolve_value(config, "weights", Sequence[tuning.WeightsName])
    candidates, lacking = tuning.offered_weights(path, names, resolve_positive(config, "last", 2))
    for name, reason in lacking.items():
        print(f"without weights={name}: {reason}", file=sys.stderr)
    return candidates


def _show(found: tuning.Trial | tuning.Challenge, first: Iterable[bool] = ()) -> None:
    """A line of the table; an iterator with one item puts the header above the first alone."""
    if isinstance(found, tuning.Challenge):
        print(found, file=sys.stderr, flush=True)
        return
    search, name = found.search, found.score.name
    penalty = "-" if search.algorithm == "greedy" else f"{search.length_penalty:.2f}"
    for _ in first:
        header = f"weights  algorithm  beam  penalty  {name:>6}  sentences  seconds  sentences/s"
        print(header, file=sys.stderr)
    print(
        f"{found.weights:7}  {search.algorithm:9}  {search.beam_size:4}  {penalty:>7}  "
        f"{found.score.value:{max(6, len(name))}.2f}  {found.sentences:9,}  {found.seconds:7.1f}  "
        f"{found.sentences_per_second:11.1f}",
        file=sys.stderr,
        flush=True,
    )
