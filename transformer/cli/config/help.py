"""What ``transformer COMMAND --help`` prints: its config, and the groups that it takes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from transformer.cli.config.arguments import choices, config_folder


def help_text(verb: str) -> str:
    """The keys of a command, with their defaults and comments."""
    folder = config_folder()
    root = folder / f"{verb}.yaml"
    files = list(included_files(root))
    if verb == "recipe":
        files += [(file, root) for file in sorted((folder / verb).glob("*.yaml"))]
    parts = [_text(root)]
    parts += [f"\n{_title(file, user, folder)}\n{_text(file)}" for file, user in files]
    return "\n".join(parts)


def _title(file: Path, user: Path, folder: Path) -> str:
    """The choice that a file is and the other choices, or the choice that builds on it."""
    group = file.parent.relative_to(folder).as_posix()
    if user.parent == file.parent:
        return f"# ==== {group}: {file.stem}, which {group}={user.stem} builds on"
    more = [name for name in choices(group) if name != file.stem]
    return f"# ==== {group}={file.stem}; or {', '.join(more)}"


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").rstrip("\n")


def included_files(file: Path) -> Iterator[tuple[Path, Path]]:
    """The files that a config includes by default, each after those it includes, and its user."""
    config: Any = yaml.safe_load(_text(file))
    for entry in config.get("defaults", ()):
        pairs = [entry.rpartition("/")[::2]] if isinstance(entry, str) else entry.items()
        for group, choice in pairs:
            chosen = file.parent / group / f"{choice}.yaml"
            # A keyword may stand before the group: optional or override.
            if " " not in group and chosen.is_file():
                yield from included_files(chosen)
                yield chosen, file
