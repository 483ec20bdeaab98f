"""A stage of a recipe: one call of a verb, what it reads and what it leaves behind.

It does not know what the verb does.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One call of a verb.

    Attributes:
        name: Of its folder in that of the recipe, such as ``02_teacher_1``.
        verb: Such as ``train``.
        arguments: Of the verb, ``KEY=VALUE``.
        config: What the verb makes of them, as plain values.
        inputs: Files that it reads; those of the corpus and of other stages.
        outputs: Files that it writes, whole or not at all.
        folder: Where they are.
        default: What the verb makes of no arguments: of a key that an older version of the
            framework did not know, what it may be now.
    """

    name: str
    verb: str
    arguments: tuple[str, ...]
    config: Mapping[str, Any]
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    folder: Path
    default: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """What a user types to do it by hand."""
        return shlex.join(["python", "-m", "transformer", self.verb, *self.arguments])

    @property
    def seeds(self) -> dict[str, int]:
        """Of all that it draws at random."""
        decoding = self.config.get("decoding", {})
        draws = decoding.get("algorithm") in ("sampling", "mbr")
        named = {
            "seed": self.config.get("seed"),
            "data.seed": self.config.get("data", {}).get("seed"),
            "decoding.seed": decoding.get("seed") if draws else None,
        }
        return {name: seed for name, seed in named.items() if seed is not None}

    def scores(self) -> dict[str, list[Any]]:
        """What sacreBLEU says of each text that the stage has scored, with signatures."""
        if self.verb not in ("train", "evaluate"):
            return {}
        return {
            file.name.partition(".")[0]: json.loads(file.read_text(encoding="utf-8"))
            for file in sorted(self.folder.glob("*.json"))
        }
