"""The weights of a run: of its best checkpoint, averaged over the newest, and the moving average.

It does not know their scores.
"""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from transformer.decoding.search.config import SearchConfig
from transformer.model.checkpoint.checkpoint import PORTABLE, read_payload, require_translation
from transformer.model.checkpoint.locate import find_checkpoint
from transformer.training.checkpointing.averaging import average_checkpoints, newest_checkpoints

WeightsName = Literal["single", "average", "ema"]
"""Of one update; the mean of the newest checkpoints; the exponential moving average."""


def offered_weights(
    folder: Path, names: Iterable[WeightsName], last: int
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The payloads of checkpoints by name, and the reasons why some are missing.

    The first is the one that the run translates with, whether it is named or not.

    Args:
        folder: The run directory.
        names: The weights to look for.
        last: Maximum number of checkpoints to average.

    Raises:
        InputError: The run has no checkpoint, or does not translate.
    """
    file = find_checkpoint(folder, "best")
    best = read_payload(file)
    require_translation(best, file)
    raw = best.get("current_model_state")
    has_ema = raw is not None
    offers = {"ema" if has_ema else "single": translating(best)}
    lacking: dict[str, str] = {}
    for name in names:
        if name in offers:
            continue
        if name == "single":
            offers[name] = translating(best) | {"state_dict": raw}
        elif name == "ema":
            lacking[name] = "the run kept no moving average (callbacks.ema_decay)"
        else:
            newest = newest_checkpoints(folder)[-last:]
            if len(newest) > 1:
                offers[name] = average_checkpoints(newest)
            else:
                lacking[name] = "the run kept fewer than two step-*.ckpt (callbacks.keep_last)"
    return offers, lacking


def translating(payload: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint without the state of training."""
    return {key: payload[key] for key in ("state_dict", PORTABLE)}


def with_search(payload: dict[str, Any], search: SearchConfig) -> dict[str, Any]:
    """A checkpoint with this search as its default decoding."""
    portable = payload[PORTABLE]
    config = portable["config"] | {"decoding": asdict(search)}
    return payload | {PORTABLE: portable | {"config": config}}
