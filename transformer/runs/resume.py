"""Which run a call resumes: the one it names, or the newest unfinished run of its config.

Knows configs and names of files; does not know what is in them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.runs.resume_compatibility import fixed_key_that_differs

_FREE = ("checkpoint",)
"""Keys of a config that may differ between two calls for the same run."""


@dataclass(frozen=True)
class RunFolder:
    """What is to be known of a run directory.

    Attributes:
        path: Where it is.
        config: The plain values of its ``config.yaml``; None if there is none.
        has_checkpoint: Whether there is one to go on from.
        finished: Whether training and its tests are over.
        taken: Whether a process is training in it.
        changed: When its checkpoint was written, in seconds of some clock.
    """

    path: Path
    config: Mapping[str, Any] | None
    has_checkpoint: bool
    finished: bool
    taken: bool = False
    changed: float = 0.0


def check_no_other_run(folder: Path) -> None:
    """Keep a new run out of the directory of another, whose checkpoints it would replace.

    Raises:
        InputError: There is a checkpoint.
    """
    if any((folder / "checkpoints").glob("*.ckpt")):
        raise InputError(
            f"{folder} holds a run: go on with checkpoint={folder} or checkpoint=auto, or begin "
            "another with hydra.run.dir=FOLDER"
        )


def find_run_to_resume(
    config: Mapping[str, Any], given: RunFolder | None, others: Sequence[RunFolder]
) -> tuple[Path | None, str]:
    """Decide for ``checkpoint=auto``: every process that sees the same decides alike.

    Args:
        config: The plain values of the call.
        given: The run directory that the call names, if it does.
        others: Those of the same experiment, if it names none.

    Returns:
        The run directory to go on with, None to begin a new run; and why, for the log.

    Raises:
        InputError: The directory that is named holds another run.
    """
    if given is not None:
        if not given.has_checkpoint:
            return None, f"{given.path} holds no checkpoint yet: a new run begins there"
        _check_same_run(config, given)
        return given.path, f"going on with {given.path}"
    alike = [
        run
        for run in others
        if run.has_checkpoint and not (run.finished or run.taken) and _same(run.config, config)
    ]
    if not alike:
        return None, "no unfinished run has this config: a new one begins"
    newest = max(alike, key=lambda run: (run.changed, run.path))
    return newest.path, f"going on with {newest.path}, the newest unfinished run of this config"


def _same(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    if one is None:
        return False
    return {k: v for k, v in one.items() if k not in _FREE} == {
        k: v for k, v in other.items() if k not in _FREE
    }


def _check_same_run(config: Mapping[str, Any], given: RunFolder) -> None:
    before = given.config or {}
    if key := fixed_key_that_differs(before, config):
        raise InputError(
            f"{given.path} holds a run with another {key}; give another hydra.run.dir, or the "
            f"same {key}"
        )


def changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two configs, a line a key, keys dotted."""
    lines = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += changes(old, new, f"{prefix}{key}.")
        elif old != new and key not in _FREE:
            lines.append(f"{prefix}{key}: {old} before, {new} now")
    return lines
