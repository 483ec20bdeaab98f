"""``tune``: the weights and the search that do best on validation become the default."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError

if TYPE_CHECKING:
    from transformer.runs.tuning.grid import SweepConfig
    from transformer.runs.tuning.trial import Trial


def main(arguments: Sequence[str]) -> int:
    """Tune; returns the exit code."""
    return run_to_exit_code(lambda: _tune(compose_config("tune", arguments), arguments))


def _tune(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.model.checkpoint.checkpoint import read_payload, write_payload
    from transformer.model.checkpoint.locate import TUNED
    from transformer.report.scores import require_writable
    from transformer.runs.tuning.candidate_weights import with_search
    from transformer.runs.tuning.grid import sweep
    from transformer.runs.tuning.trial import best_trial

    settings = _settings(config)
    path = resolve_path(config, "checkpoint")
    offers = _offers(config, path, arguments)
    # What the sweep finds in hours is written at its end.
    require_writable(path / "checkpoints" if path.is_dir() else path.parent)
    trials = sweep(offers, settings, _table())
    best = best_trial(trials)
    if path.is_dir():
        path = path / "checkpoints" / f"{TUNED}.ckpt"
        payload = offers[best.weights]
    else:
        # With all that training needs to go on from it.
        payload = read_payload(path)
    write_payload(with_search(payload, best.search), path)
    print(f"written to {path}:", file=sys.stderr)
    _show(best)
    print(json.dumps(_report(path, best, trials), indent=1, ensure_ascii=False))


def _settings(config: DictConfig) -> "SweepConfig":
    from transformer.cli.load import resolve_batch_tokens
    from transformer.cli.models import resolve_device
    from transformer.common.schema import typed_value
    from transformer.runs.tuning.grid import SweepConfig

    hints = {
        "beam_sizes": Sequence[int],
        "length_penalties": Sequence[float],
        "metric": str,
        "sentences": int | None,
    }
    values: Any = OmegaConf.to_container(config)
    return SweepConfig(
        **{key: typed_value(values[key], hint, key) for key, hint in hints.items()},
        batch_tokens=resolve_batch_tokens(config),
        device=resolve_device(config.device),
    )


def _offers(
    config: DictConfig, path: Path, arguments: Sequence[str]
) -> Mapping[str, dict[str, Any]]:
    """The weights of a run, whose validation text may be read.

    Raises:
        InputError: They cannot be read, or the text may not.
    """
    from transformer.cli.evaluate.scored_text import require_trusted
    from transformer.model.checkpoint.checkpoint import PORTABLE

    offers = _weights(config, path, arguments)
    require_trusted(config, next(iter(offers.values()))[PORTABLE]["config"])
    return offers


def _weights(
    config: DictConfig, path: Path, arguments: Sequence[str]
) -> Mapping[str, dict[str, Any]]:
    """Of a run directory all weights that are asked for and there; of a file its own."""
    from transformer.common.schema import typed_value
    from transformer.model.checkpoint.checkpoint import read_payload, require_translation
    from transformer.model.checkpoint.locate import find_checkpoint
    from transformer.runs.tuning.candidate_weights import WeightsName, offered_weights, translating

    if path.is_dir():
        values: Any = OmegaConf.to_container(config)
        names = typed_value(values["weights"], Sequence[WeightsName], "weights")
        last = typed_value(config.last, int, "last")
        if last < 2:
            raise InputError(f"last={last} leaves nothing to average; give 2 or more")
        offers, lacking = offered_weights(path, names, last)
        for name, reason in lacking.items():
            print(f"without weights={name}: {reason}", file=sys.stderr)
        return offers
    for argument in arguments:
        if argument.partition("=")[0] in ("weights", "last"):
            raise InputError(
                f"{argument} is for a run directory: {path} has weights of its own, and no others"
            )
    file = find_checkpoint(path)
    payload = read_payload(file)
    require_translation(payload, file)
    return {"own": translating(payload)}


def _table() -> Callable[["Trial"], None]:
    """What shows each trial; the head of the table comes with the first."""
    heads = iter(["weights  algorithm  beam  penalty   score  seconds  sentences/s"])

    def show(trial: "Trial") -> None:
        for head in heads:
            print(head, file=sys.stderr)
        _show(trial)

    return show


def _show(trial: "Trial") -> None:
    """A line of the table."""
    search = trial.search
    penalty = "-" if search.algorithm == "greedy" else f"{search.length_penalty:.2f}"
    print(
        f"{trial.weights:7}  {search.algorithm:9}  {search.beam_size:4}  "
        f"{penalty:>7}  {trial.score.value:6.2f}  {trial.seconds:7.1f}  "
        f"{trial.sentences_per_second:11.1f}",
        file=sys.stderr,
        flush=True,
    )


def _report(file: Path, best: "Trial", trials: Sequence["Trial"]) -> dict[str, Any]:
    return {
        "checkpoint": str(file),
        "best": best.to_json(),
        "before": trials[0].to_json(),
        "trials": [trial.to_json() for trial in trials],
    }
