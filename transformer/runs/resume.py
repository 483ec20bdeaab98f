"""The run that a command resumes: the one it names, or the newest unfinished run of its config.

It knows configs and names of files, not their content.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.runs.resume_compatibility import fixed_key_that_differs

_FREE = ("checkpoint",)
"""Keys of a config that may differ between two commands for the same run."""


@dataclass(frozen=True)
class RunFolder:
    """State of a run directory.

    Attributes:
        path: The directory.
        config: The plain values of its ``config.yaml``; None if there is none.
        has_checkpoint: Whether it has a checkpoint to resume from.
        finished: Whether training and its tests are over.
        locked: Whether a process trains in it.
        changed: Time of its checkpoint, in seconds.
    """

    path: Path
    config: Mapping[str, Any] | None
    has_checkpoint: bool
    finished: bool
    locked: bool = False
    changed: float = 0.0


def check_no_other_run(folder: Path) -> None:
    """Check that a new run does not replace the checkpoints of another.

    Raises:
        InputError: There is a checkpoint.
    """
    if any((folder / "checkpoints").glob("*.ckpt")):
        raise InputError(
            f"{folder} holds a run: go on with checkpoint={folder} or checkpoint=auto, or begin "
            "another with hydra.run.dir=FOLDER"
        )


def find_run_to_resume(
    config: Mapping[str, Any], given: RunFolder | None, candidates: Sequence[RunFolder]
) -> tuple[Path | None, str]:
    """Find the run of ``checkpoint=auto``, the same in all processes.

    Args:
        config: The plain values of the command.
        given: The run directory that the command names, if any.
        candidates: Run directories of the same experiment, if it names none.

    Returns:
        The run directory to resume, None to begin a new run; and the reason, for the log.

    Raises:
        InputError: The directory that is named holds another run.
    """
    if given is not None:
        if not given.has_checkpoint:
            return None, f"{given.path} holds no checkpoint yet: a new run begins there"
        if key := fixed_key_that_differs(given.config or {}, config):
            raise InputError(
                f"{given.path} holds a run with another {key}; give another hydra.run.dir, or the "
                f"same {key}"
            )
        return given.path, f"going on with {given.path}"
    alike = [
        run
        for run in candidates
        if run.has_checkpoint
        and not (run.finished or run.locked)
        and run.config is not None
        and not changes(run.config, config)
    ]
    if not alike:
        return None, "no unfinished run has this config: a new one begins"
    newest = max(alike, key=lambda run: (run.changed, run.path))
    return newest.path, f"going on with {newest.path}, the newest unfinished run of this config"


def changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The differences of two configs: one line per dotted key."""
    lines = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += changes(old, new, f"{prefix}{key}.")
        elif old != new and key not in _FREE:
            lines.append(f"{prefix}{key}: {old} before, {new} now")
    return lines
