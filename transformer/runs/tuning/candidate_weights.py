"""The weights that a run offers: of its best checkpoint, of the newest averaged, of the average
that training kept.

It does not know how they are searched with, nor what they are worth.
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
    """The payloads of checkpoints that only translate, by name, and why others are not there.

    The first is what the run translates with as it is, whether it is named or not.

    Args:
        folder: The run directory.
        names: Which to look for.
        last: The most checkpoints that are averaged.

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
    """A checkpoint without what only training needs."""
    return {key: payload[key] for key in ("state_dict", PORTABLE)}


def with_search(payload: dict[str, Any], search: SearchConfig) -> dict[str, Any]:
    """A checkpoint whose default decoding is this search; the rest is as it was."""
    portable = payload[PORTABLE]
    config = portable["config"] | {"decoding": asdict(search)}
    return payload | {PORTABLE: portable | {"config": config}}
