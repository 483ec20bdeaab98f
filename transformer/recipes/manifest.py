"""``manifest.json``: of every stage of a recipe what made what, and whether it still holds.

It runs nothing.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from transformer.data.lines import file_digest
from transformer.errors import InputError
from transformer.recipes.stage import Stage
from transformer.recipes.version import code_version
from transformer.training.run_folder import changes

MANIFEST = "manifest.json"

FREE = frozenset(
    {
        *("data.cache", "data.workers", "data.prepare_workers", "keep_memory", "device"),
        *("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy"),
        *("trainer.log_every_n_steps", "logger.csv", "logger.tensorboard", "callbacks.samples"),
        "gradient_checkpointing",
    }
)
"""Keys that say where and how a stage computes, and not what: they may change between two calls."""


class Manifest:
    """What has been done in the folder of a recipe.

    Attributes:
        file: Where it is written.
        recipe: Its name.
        stages: An entry for each that has begun, in their order.
    """

    def __init__(self, folder: Path, recipe: str) -> None:
        """Read it, if there is one.

        Raises:
            InputError: It is damaged, or of another recipe.
        """
        self.file, self.recipe = folder / MANIFEST, recipe
        self.stages: list[dict[str, Any]] = []
        if not self.file.exists():
            return
        try:
            values = json.loads(self.file.read_text(encoding="utf-8"))
            name, self.stages = values["recipe"], list(values["stages"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{self.file} cannot be read ({error}); restore it, or give another output="
            ) from error
        if name != recipe:
            raise InputError(f"{folder} is of recipe={name}; give another output=")

    def check(self, plan: Sequence[Stage]) -> int:
        """Compare all that has begun with what is now asked for; returns how many are done.

        Raises:
            InputError: A stage would not be what the manifest says.
        """
        for number, entry in enumerate(self.stages):
            if number >= len(plan) or plan[number].name != entry["name"]:
                where = self.file.parent / entry["name"]
                raise InputError(
                    f"{where} is not a stage of this call; {self._remedy(number, plan)}"
                )
            if change := _changed(entry, plan[number]):
                where = self.file.parent / entry["name"]
                raise InputError(
                    f"{where} was made of something else: {change}; {self._remedy(number, plan)}"
                )
        return sum(is_done(entry) for entry in self.stages)

    def begin(self, stage: Stage) -> dict[str, Any]:
        """Note that a stage begins, or goes on; returns its entry.

        Raises:
            InputError: An input is missing, or its folder holds what this manifest does not know.
        """
        if not self.stages or self.stages[-1]["name"] != stage.name:
            if stage.folder.exists():
                raise InputError(
                    f"{stage.folder} is there, and {self.file} does not say what made it; delete "
                    "it, or give another output="
                )
            self.stages.append(
                {
                    "name": stage.name,
                    "command": stage.command,
                    "config": plain(stage.config),
                    "seeds": stage.seeds,
                    "inputs": digests(stage.inputs),
                    "version": code_version(),
                    "begun": _now(),
                    "ended": None,
                    "seconds": 0.0,
                }
            )
            self.write()
        return self.stages[-1]

    def withdraw(self, stage: Stage) -> None:
        """Forget a stage that was refused before it wrote anything: it may become another."""
        del self.stages[-1]
        with suppress(OSError):
            stage.folder.rmdir()
        self.write()

    def end(self, stage: Stage) -> None:
        """Note what a stage has made.

        Raises:
            InputError: It has not written what it should.
        """
        entry = self.stages[-1]
        entry["outputs"] = digests(stage.outputs)
        entry["scores"] = stage.scores()
        entry["ended"] = _now()
        self.write()

    def forget(self, plan: Sequence[Stage], name: str) -> None:
        """Delete a stage and all after it.

        Raises:
            InputError: There is no such stage in the plan.
        """
        names = [stage.name for stage in plan]
        if name not in names:
            raise InputError(f"redo_from={name} is not a stage; choose one of {', '.join(names)}")
        left = names.index(name)
        forgotten = [entry["name"] for entry in self.stages[left:]]
        for folder in {*forgotten, *names[left:]}:
            shutil.rmtree(self.file.parent / folder, ignore_errors=True)
        if forgotten:
            del self.stages[left:]
            self.write()

    def write(self) -> None:
        """Write it whole or not at all.

        Raises:
            InputError: It cannot be written; what was there is whole.
        """
        temporary = self.file.with_name(f".{MANIFEST}")
        values = {"recipe": self.recipe, "stages": self.stages}
        try:
            with open(temporary, "w", encoding="utf-8") as opened:
                json.dump(values, opened, indent=1, ensure_ascii=False)
                opened.write("\n")
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(temporary, self.file)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise InputError(f"{self.file} cannot be written: {error.strerror or error}") from error

    def _remedy(self, number: int, plan: Sequence[Stage]) -> str:
        if number >= len(plan):
            return "give another output="
        return f"give another output=, or redo_from={plan[number].name} to make it anew"


def is_done(entry: Mapping[str, Any]) -> bool:
    """Whether the stage of an entry is over."""
    return entry["ended"] is not None


def digests(files: Sequence[Path]) -> dict[str, str]:
    """The sha256 of each file, by its path.

    Raises:
        InputError: One is missing or cannot be read.
    """
    return {str(file): _digest(file) for file in files}


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as it comes back from a file."""
    values: dict[str, Any] = json.loads(json.dumps(config, default=str))
    return values


def _changed(entry: Mapping[str, Any], stage: Stage) -> str | None:
    """What differs between a stage as it was made and as it is asked for now, in a few words."""
    for line in changes(entry["config"], plain(stage.config)):
        if line.partition(":")[0] not in FREE:
            return line
    for what in ("inputs", "outputs"):
        named = stage.inputs if what == "inputs" else stage.outputs
        known = entry.get(what)
        if known is None:
            continue
        if set(known) != set(map(str, named)):
            return f"its {what} were {', '.join(known)}"
        for file in named:
            if not file.is_file():
                return f"{file} is missing"
            if _digest(file) != known[str(file)]:
                return f"{file} has changed since"
    return None


def _digest(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return file_digest(file).hex()
    return _digest_of(file, status.st_size, status.st_mtime_ns, status.st_ino)


@cache
def _digest_of(file: Path, size: int, changed: int, inode: int) -> str:
    """Computed once in a call for a file that stays as it is: outputs are inputs of others."""
    return file_digest(file).hex()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
