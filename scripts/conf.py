"""Writes the defaults of the dataclasses into the YAML of conf/; comments and layout stay.

python -m scripts.conf
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml
from omegaconf import OmegaConf

from transformer.cli.arguments import config_folder, included_files
from transformer.cli.config import SETTINGS
from transformer.cli.recipe import RECIPES
from transformer.common.schema import field_key
from transformer.settings.run import RunConfig
from transformer.settings.training import WandbConfig

COMMANDS: dict[str, Any] = {"train": RunConfig} | {
    command: resolve_name(f"transformer.settings.{kind}") for command, kind in SETTINGS.items()
}
"""The dataclass of each command."""

_LINE = re.compile(r"( *)(\w+): *(.*?)( *)( #.*)?")
"""Indentation, key, value, blanks and comment."""


def main() -> None:
    """Rewrite every file."""
    for file, values in shown_defaults():
        file.write_text(rewritten(file.read_text(encoding="utf-8"), values), encoding="utf-8")


def shown_defaults() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each file that shows defaults, and the defaults by key."""
    folder = config_folder()
    for command, kind in COMMANDS.items():
        yield folder / f"{command}.yaml", dict(flat(defaults(kind)))
    for file, _ in included_files(folder / "train.yaml"):
        yield file, dict(flat(defaults(RunConfig)[file.parent.name]))
    for name, recipe in RECIPES.items():
        yield folder / "recipe" / f"{name}.yaml", dict(flat(defaults(recipe)))
    yield folder / "logger" / "wandb.yaml", dict(flat(defaults(WandbConfig), "wandb."))


def defaults(kind: Any) -> dict[str, Any]:
    """The defaults of a dataclass as plain values, without required fields."""
    values = {
        field_key(field.name): field.default
        if field.default_factory is MISSING
        else field.default_factory()
        for field in fields(kind)
    }
    kept = {name: value for name, value in values.items() if value is not MISSING}
    plain: dict[str, Any] = json.loads(json.dumps(kept, default=_plain))
    return plain


def _plain(value: Any) -> Any:
    return vars(value) if is_dataclass(value) else str(value)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values that are no mappings, with the whole keys."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def rewritten(text: str, values: Mapping[str, Any]) -> str:
    """A YAML with these values; other keys, ``${…}`` and ``???`` stay as they are."""
    path: list[str] = []
    lines = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            indent, key, value, gap, comment = match.groups("")
            path[len(indent) // 2 :] = [key]
            default = values.get(".".join(path), MISSING)
            if value and default is not MISSING and _differs(value, default):
                shown = yaml.safe_dump(default, default_flow_style=True, width=math.inf)
                # The comment keeps its column.
                shown = shown.split("\n")[0].ljust(len(value + gap))
                line = f"{indent}{key}: {shown}{comment}".rstrip()
        lines.append(line)
    return "\n".join(lines) + "\n"


def _differs(text: str, value: Any) -> bool:
    # OmegaConf reads 2e-3 as a number, unlike PyYAML; 1, 1.0 and true differ.
    if "${" in text or text == "???":
        return False
    return repr(OmegaConf.create(f"x: {text}").x) != repr(value)


if __name__ == "__main__":
    main()
