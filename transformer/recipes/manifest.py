"""``manifest.json``: of every stage of a recipe what made what, and whether it still holds.

It runs nothing.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.files import remove_parts, written_whole
from transformer.recipes.comparison import difference, placed, recorded
from transformer.recipes.digests import Digests
from transformer.recipes.entries import folder_name, read_entries, versions_of
from transformer.recipes.stage import Stage
from transformer.recipes.version import code_version

MANIFEST = "manifest.json"


class Manifest:
    """What has been done in the folder of a recipe.

    Attributes:
        file: Where it is written.
        recipe: Its name.
        stages: An entry for each that has begun, in their order.
        redo_from: The stage from which all is being done again; None once the recipe is done.
    """

    def __init__(
        self, folder: Path, recipe: str, digests: Digests | None = None, call: str = ""
    ) -> None:
        """Read it, if there is one; stages that begin from now on are of the user's ``call``.

        Raises:
            InputError: It is damaged, or of another recipe.
        """
        self.file, self.recipe = folder / MANIFEST, recipe
        self.digests, self.call = digests or Digests(), call
        self.stages: list[dict[str, Any]] = []
        self.redo_from: str | None = None
        self._deleting: list[str] = []
        if not self.file.exists():
            return
        try:
            values = json.loads(self.file.read_text(encoding="utf-8"))
            name, self.stages = values["recipe"], read_entries(values["stages"])
            self.redo_from = values.get("redo_from")
            self._deleting = list(map(folder_name, values.get("deleting", [])))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"{self.file} cannot be read ({error}); restore it, or give another output="
            ) from error
        if name != recipe:
            raise InputError(f"{folder} is of recipe={name}; give another output=")

    def check(self, plan: Sequence[Stage], until: int | None = None) -> int:
        """Compare what has begun with what is now asked for; returns how many stages are done.

        Args:
            plan: All stages.
            until: The number of the first that is not looked at, from 0; None looks at all.

        Raises:
            InputError: A stage would not be what the manifest says.
        """
        for number, entry in enumerate(self.stages[:until]):
            where = self.file.parent / entry["name"]
            if number >= len(plan) or plan[number].name != entry["name"]:
                raise InputError(
                    f"{where} is not a stage of this call; {self._remedy(number, plan)}"
                )
            if change := difference(entry, plan[number], self.file.parent, self.digests):
                raise InputError(
                    f"{where} was made of something else: {change}; {self._remedy(number, plan)}"
                )
        return sum(entry["ended"] is not None for entry in self.stages[:until])

    def begin(self, stage: Stage) -> dict[str, Any]:
        """Note that a stage begins, or goes on; returns its entry.

        Raises:
            InputError: An input is missing, or not what a stage before has read or written; or the
                folder of the stage holds what this manifest does not know.
        """
        if not self.stages or self.stages[-1]["name"] != stage.name:
            if stage.folder.exists():
                raise InputError(
                    f"{stage.folder} is there, and {self.file} does not say what made it; delete "
                    "it, or give another output="
                )
            for entry in self.stages:
                self._refuse_another(stage, entry["outputs"], f"{entry['name']} has written it")
                self._refuse_another(stage, entry["inputs"], f"{entry['name']} has read it")
            self.stages.append(
                {
                    "name": stage.name,
                    "command": stage.command,
                    "call": self.call,
                    "directory": str(Path.cwd()),
                    "config": recorded(stage, self.file.parent),
                    "seeds": stage.seeds,
                    "inputs": self._digests(stage.inputs),
                    "version": code_version(),
                    "begun": _now(),
                    "ended": None,
                    "seconds": 0.0,
                }
            )
            self.write()
        return self.stages[-1]

    def goes_on_now(self) -> None:
        """Note that the code of now works on the last stage, which another may have begun."""
        entry, version = self.stages[-1], code_version()
        if entry["version"] != version:
            entry.setdefault("earlier_versions", []).append(entry["version"])
            entry["version"] = version
            self.write()

    def withdraw(self, stage: Stage) -> None:
        """Forget a stage that was refused before it wrote anything: it may become another."""
        del self.stages[-1]
        with suppress(OSError):
            stage.folder.rmdir()
        self.write()

    def end(self, stage: Stage) -> None:
        """Note what a stage has made.

        Raises:
            InputError: It has not written what it should, or what it has read has changed since.
        """
        entry = self.stages[-1]
        self._refuse_another(stage, entry["inputs"], f"{stage.name} has begun")
        entry["outputs"] = self._digests(stage.outputs)
        entry["scores"] = stage.scores()
        entry["ended"] = _now()
        self.write()

    def place(self, plan: Sequence[Stage], name: str) -> int:
        """The number of a stage, from 0, which is to be done again.

        Raises:
            InputError: There is no such stage, or nothing of it that could be done again.
        """
        names = [stage.name for stage in plan]
        if name not in names:
            raise InputError(f"redo_from={name} is not a stage; choose one of {', '.join(names)}")
        number = names.index(name)
        if number >= len(self.stages) and self.redo_from != name:
            raise InputError(f"redo_from={name} has not begun yet; leave it out")
        return number

    def forget(self, number: int, name: str) -> None:
        """Delete a stage and all after it, and note that they are done again.

        Raises:
            InputError: They cannot be deleted.
        """
        self._deleting = [entry["name"] for entry in self.stages[number:]]
        del self.stages[number:]
        self.redo_from = name
        self.write()
        self.sweep()

    def sweep(self) -> None:
        """Delete what a call has noted that was killed over it.

        Raises:
            InputError: It cannot be deleted.
        """
        if not self._deleting:
            return
        for folder in self._deleting:
            try:
                shutil.rmtree(self.file.parent / folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InputError(
                    f"{self.file.parent / folder} cannot be deleted: {error.strerror or error}"
                ) from error
        self._deleting = []
        self.write()

    def all_done(self) -> None:
        """Note that nothing is left to do again."""
        if self.redo_from is not None:
            self.redo_from = None
            self.write()

    def other_code(self) -> str | None:
        """Which stages another version of the code has made, in a sentence; None if none."""
        now = code_version()
        others = [entry for entry in self.stages if any(one != now for one in versions_of(entry))]
        if not others:
            return None
        versions = [version for entry in others for version in versions_of(entry)]
        differing = [
            f"{key} {' or '.join(sorted({str(one.get(key)) for one in versions}))} then, {new} now"
            for key, new in now.items()
            if any(one.get(key) != new for one in versions)
        ]
        names = ", ".join(entry["name"] for entry in others)
        return f"{names}: made by another version of the code ({'; '.join(differing)})"

    def write(self) -> None:
        """Write it whole or not at all.

        Raises:
            InputError: It cannot be written; what was there is whole.
        """
        values = {
            "recipe": self.recipe,
            "redo_from": self.redo_from,
            "deleting": self._deleting,
            "stages": self.stages,
        }
        try:
            remove_parts(self.file)
            with written_whole(self.file) as part:
                part.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", "utf-8")
        except OSError as error:
            raise InputError(f"{self.file} cannot be written: {error.strerror or error}") from error

    def _digests(self, files: Sequence[Path]) -> dict[str, str]:
        return {placed(file, self.file.parent): self.digests.of(file) for file in files}

    def _refuse_another(self, stage: Stage, known: Mapping[str, str], since: str) -> None:
        """Refuse an input that is not what it was: two stages would read two texts."""
        for file in stage.inputs:
            before = known.get(placed(file, self.file.parent))
            if before is not None and self.digests.of(file) != before:
                raise InputError(
                    f"{file} has changed since {since}; give back what it was, or give the "
                    "same command again, which says what is to be made anew"
                )

    def _remedy(self, number: int, plan: Sequence[Stage]) -> str:
        if number >= len(plan):
            return "give another output="
        return f"give another output=, or redo_from={plan[number].name} to make it anew"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
