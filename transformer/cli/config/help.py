"""What ``transformer VERB --help`` prints: the config of the verb, and of the groups it takes.

The comments in ``conf/`` are the help; nothing is said twice.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from transformer.cli.config.compose import config_folder
from transformer.cli.config.hydra_errors import NO_CHOICE


def help_text(verb: str) -> str:
    """The keys of a verb, with their defaults and comments."""
    folder = config_folder()
    root = folder / f"{verb}.yaml"
    files = list(_chosen(root))
    if verb == "recipe":
        files += [(file, root) for file in sorted((folder / verb).glob("*.yaml"))]
    parts = [_text(root)]
    parts += [f"\n{_title(file, taken_by, folder)}\n{_text(file)}" for file, taken_by in files]
    return "\n".join(parts)


def _title(file: Path, taken_by: Path, folder: Path) -> str:
    """The choice that a file is, and what it could be instead; or what it is the base of."""
    group = file.parent.relative_to(folder).as_posix()
    if taken_by.parent == file.parent:
        return f"# ==== {group}: {file.stem}, which {group}={taken_by.stem} builds on"
    names = sorted(one.stem for one in file.parent.glob("*.yaml"))
    others = [name for name in names if name != file.stem and f"{group}/{name}" != NO_CHOICE]
    if not others:
        return f"# ==== {group}: {file.stem}"
    return f"# ==== {group}={file.stem}; or {', '.join(others)}"


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").rstrip("\n")


def _chosen(file: Path) -> Iterator[tuple[Path, Path]]:
    """The files that a config takes unless the call says otherwise, and the file that takes each.

    What one builds on is first.
    """
    config: Any = yaml.safe_load(_text(file))
    for entry in config.get("defaults", ()):
        for group, choice in _entries(entry):
            chosen = file.parent / group / f"{choice}.yaml"
            if chosen.is_file():
                yield from _chosen(chosen)
                yield chosen, file


def _entries(entry: Any) -> Iterator[tuple[str, str]]:
    """Group and choice of an entry of a defaults list, where it has them."""
    if isinstance(entry, str):
        group, _, choice = entry.rpartition("/")
        yield group, choice
        return
    for group, choice in entry.items():
        # Not those with a keyword before the group, optional or override.
        if choice is not None and " " not in group:
            yield group, str(choice)
