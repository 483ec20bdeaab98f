"""``tune``: the weights and the search that do best on validation become the default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformer.checkpoint import checkpoint
from transformer.checkpoint.checkpoint import Loaded
from transformer.checkpoint.run_directory import TUNED, find_checkpoint
from transformer.checkpoint.trust import named_classes
from transformer.commands.scored_text import changed_metrics, require_trusted
from transformer.common.files import require_writable
from transformer.common.own_code import import_code
from transformer.interchange.translators import fetched
from transformer.runs.tuning import (
    Challenge,
    Trial,
    Tuning,
    offered_weights,
    translating,
    try_all,
    with_search,
)
from transformer.settings.evaluation import TuneConfig


class MissingWeights(NamedTuple):
    """Weights that a run does not have, and why."""

    name: str
    reason: str


Show = Callable[[MissingWeights | Trial | Challenge], object]


@dataclass(frozen=True)
class TunedCheckpoint:
    """The checkpoint that translates from now on, and what has been tried."""

    file: Path
    is_new: bool
    """Whether the file was written; if not, nothing is significantly better than the run."""
    tuning: Tuning

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"checkpoint": str(self.file), **self.tuning.to_json()}


def tune(
    config: TuneConfig,
    show: Show = lambda event: None,
    *,
    loaded: Loaded = lambda checkpoints: None,
) -> TunedCheckpoint:
    """Try weights and searches on the validation text, and write the best into a checkpoint.

    Of a run directory, ``checkpoints/tuned.ckpt`` is written; a file keeps all but its search.

    Args:
        config: The settings; InputError before the search if one is wrong, or nothing can be
            written.
        show: Gets the weights that the run lacks, each trial and each test of the best of them.
        loaded: As for ``load_translator``.
    """
    path = fetched(config.checkpoint)
    candidates = _candidates(config, show)
    run = checkpoint.portable_part(next(iter(candidates.values()))).config
    require_trusted(config, run, path)
    import_code(named_classes(run))
    metrics = changed_metrics(config, run, path)
    # The search takes hours; its result is written at its end.
    require_writable(path / "checkpoints" if path.is_dir() else path.parent)
    tuning = try_all(candidates, config, metrics, show, loaded)
    best = tuning.best
    file = find_checkpoint(path)
    if best is tuning.trials[0] and (path == file or file.stem != TUNED):
        return TunedCheckpoint(file, False, tuning)
    # A file keeps all that training needs to resume from it.
    payload = candidates[best.weights] if path.is_dir() else checkpoint.read_payload(path)
    file = path / "checkpoints" / f"{TUNED}.ckpt" if path.is_dir() else path
    checkpoint.write_payload(with_search(payload, best.search), file)
    return TunedCheckpoint(file, True, tuning)


def _candidates(config: TuneConfig, show: Show) -> Mapping[str, dict[str, Any]]:
    """The payloads with the weights to compare: of a run directory several, of a file its own."""
    path = fetched(config.checkpoint)
    if not path.is_dir():
        file = find_checkpoint(path)
        payload = checkpoint.read_merged(file)
        checkpoint.require_translation(payload, file)
        return {"own": translating(payload)}
    candidates, lacking = offered_weights(path, config.weights, config.last)
    for name, reason in lacking.items():
        show(MissingWeights(name, reason))
    return candidates
