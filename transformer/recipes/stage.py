"""A stage of a recipe: one command, the files that it reads and the files that it writes."""

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

from transformer.common.files import CONFIG_DIR
from transformer.common.schema import override_key
from transformer.recipes.overrides import override

FREE = frozenset(
    {
        *("data.cache", "data.workers", "data.prepare_workers", "device", "batch_tokens"),
        *("trainer.accelerator", "trainer.strategy", "trainer.log_every_n_steps"),
        *("answers", "api_key_env", "backoff", "concurrency", "timeout", "tries"),
        *("logger.csv", "logger.tensorboard", "gradient_checkpointing"),
        *("launch", "join"),
    }
)
"""Keys that do not change what a stage computes, and may differ between two calls.

``batch_tokens`` is that of translating and scoring; ``data.batch_tokens`` is not free.
"""


@dataclass(frozen=True)
class Stage:
    """One command: the user's ``settings`` and files (``reads``), the recipe's ``own`` keys."""

    folder: Path
    verb: str
    settings: tuple[str, ...]
    own: Mapping[str, Any]
    outputs: tuple[Path, ...]
    reads: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def marker(self) -> Path:
        """The file beside its folder that the runner writes."""
        return self.folder.with_name(f"{self.name}.json")

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*self.settings, *starmap(override, self.own.items()))

    @property
    def command(self) -> str:
        """What a user types to run the stage by hand."""
        own = os.environ.get(CONFIG_DIR)
        given = ["--config-dir", own] if own else []
        return shlex.join(["python", "-m", "transformer", self.verb, *given, *self.arguments])

    @property
    def inputs(self) -> tuple[Path, ...]:
        named = (path for path in _paths_in(self.own) if not path.is_relative_to(self.folder))
        return (*self.reads, *named)

    @property
    def digest(self) -> str:
        """The sha256 of the command without free keys, with files as ``label`` names them."""
        settings = [one for one in self.settings if override_key(one) not in FREE]
        own = os.environ.get(CONFIG_DIR)
        # The user's own choices of groups, whichever the settings name.
        files = sorted(Path(own).glob("*/*.yaml")) if own else []
        choices = [file.read_text("utf-8") for file in files]
        whole = [self.verb, settings, dict(self.own), *choices]
        text = json.dumps(whole, default=self.label)
        return hashlib.sha256(text.encode()).hexdigest()

    def label(self, file: Path) -> str:
        """The name of a file, relative to the folder of the recipe if it is inside."""
        home = self.folder.parent
        return str(file.relative_to(home) if file.is_relative_to(home) else file.absolute())


def _paths_in(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif not isinstance(value, str) and isinstance(value, Sequence | Mapping):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _paths_in(inner)
