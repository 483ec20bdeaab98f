"""Whether a stage that has begun is the one that is asked for now, file by file and key by key.

It writes nothing.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer.common.files import given_path
from transformer.model.checkpoint.migrations import ADDED, ADDED_AT_ROOT, as_meant
from transformer.recipes.digests import Digests
from transformer.recipes.stage import Stage

FREE = frozenset(
    {
        *("data.cache", "data.workers", "data.prepare_workers", "keep_memory", "device"),
        *("trainer.accelerator", "trainer.strategy", "trainer.log_every_n_steps"),
        *("logger.csv", "logger.tensorboard", "callbacks.samples"),
        *("gradient_checkpointing", "batch_tokens", "data.held_out_by"),
        "data.max_line",
    }
)
"""Keys that say where and how a stage computes, and not what: they may change between two calls.

``batch_tokens`` is that of ``translate`` and ``evaluate``; ``data.batch_tokens`` is none of them.
``data.held_out_by`` matters to the text that the first stage writes, and what it wrote stays.
"""

_SHARES = ("trainer.devices", "trainer.num_nodes", "trainer.accumulate_grad_batches")
"""Keys of which an update knows the product alone, the batches that it takes."""

_NEUTRAL: dict[str, Any] = {
    **{
        f"{group}.{key}": value
        for groups in ADDED.values()
        for group, values in groups.items()
        for key, value in values.items()
    },
    **{key: value for values in ADDED_AT_ROOT.values() for key, value in values.items()},
}
"""What a key means that an older version of the framework did not know."""

_ABSENT = object()


def placed(file: Path, home: Path) -> str:
    """The name of a file wherever the call is made: inside a folder relative to it, else whole."""
    whole = Path(os.path.abspath(given_path(file)))
    real = whole.parent.resolve() / whole.name
    home = home.resolve()
    return str(real.relative_to(home)) if real.is_relative_to(home) else str(whole)


def recorded(stage: Stage, home: Path) -> dict[str, Any]:
    """The config of a stage as it is kept in a file, with the paths as ``placed`` names them."""
    paths = {os.path.abspath(path) for path in (*stage.inputs, *stage.outputs, stage.folder)}

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: kept(one) for key, one in value.items()}
        if isinstance(value, list):
            return [kept(one) for one in value]
        known = isinstance(value, str) and os.path.abspath(os.path.expanduser(value)) in paths
        return placed(Path(value), home) if known else value

    config: dict[str, Any] = kept(json.loads(json.dumps(stage.config, default=str)))
    data = config.get("data")
    if isinstance(data, dict) and isinstance(data.get("root"), str):
        data["root"] = placed(Path(data["root"]), home)
    return config


def difference(entry: Mapping[str, Any], stage: Stage, home: Path, digests: Digests) -> str | None:
    """What differs between a stage as it was made and as it is asked for now, in a few words."""
    before, now = as_meant(entry["config"]), recorded(stage, home)
    for key, line in _changes(before, now, stage.default):
        if key not in FREE and key not in _SHARES:
            return line
    if (old := _update_size(before)) != (new := _update_size(now)):
        return f"{' x '.join(_SHARES)}: {old} before, {new} now"
    for what, named in (("inputs", stage.inputs), ("outputs", stage.outputs)):
        known = entry.get(what)
        if known is None:
            continue
        files = {placed(file, home): file for file in named}
        if set(known) != set(files):
            return f"its {what} were {', '.join(known)}"
        for name, file in files.items():
            if not file.is_file():
                return f"{file} is missing"
            if digests.of(file) != known[name]:
                return f"{file} has changed since"
    return None


def _update_size(config: Mapping[str, Any]) -> str:
    """The batches of an update, where the config tells how many devices there are."""
    trainer = config.get("trainer", {})
    factors = [trainer.get(key.removeprefix("trainer."), 1) for key in _SHARES]
    known = all(isinstance(one, int) and one > 0 for one in factors)
    return str(math.prod(factors)) if known else " x ".join(map(str, factors))


def _changes(
    before: Mapping[str, Any], now: Mapping[str, Any], default: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Keys that differ, and how; one that was not known then may be what it means by itself."""
    for name in sorted(before.keys() | now.keys()):
        key, new, usual = f"{prefix}{name}", now.get(name), default.get(name)
        old = before.get(name, {} if isinstance(new, Mapping) else _ABSENT)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inside = usual if isinstance(usual, Mapping) else {}
            yield from _changes(old, new, inside, f"{key}.")
        elif old is _ABSENT:
            if new != _NEUTRAL.get(key, usual):
                yield key, f"{key}: not there before, {new} now"
        elif old != new:
            yield key, f"{key}: {old} before, {new} now"
