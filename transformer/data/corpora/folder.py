"""Finds the text of each split in a folder by the names of its files, such as ``valid.de.gz``.

Does not read them.
"""

from dataclasses import replace
from pathlib import Path

from transformer.common.errors import InputError, MissingFile
from transformer.common.files import given_path
from transformer.data.config import DataConfig
from transformer.data.corpora.unused_keys import check_unused_keys

NAMES = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""What the file names of each split may begin with; the language follows, then perhaps ``.gz``."""


def as_files(config: DataConfig) -> DataConfig:
    """Return a config of ``data.corpus=folder`` as one of ``files``, with the paths that there are.

    Raises:
        MissingFile: there is no folder.
        InputError: there is no training text in it, a text in one language alone, or
            two that could be meant; or paths are given besides.
    """
    check_unused_keys(config)
    if config.root is None:
        raise InputError("data=folder needs a folder; set data.root=FOLDER")
    root = given_path(config.root)
    if not root.is_dir():
        raise MissingFile(f"data.root={config.root} is no folder (seen from {Path.cwd()})")
    found: dict[str, tuple[str, str] | None] = {}
    for split, names in NAMES.items():
        sides = [_find(root, names, code) for code in (config.source, config.target)]
        found[split] = _both(sides, root, split, config)
    if found["train"] is None:
        raise InputError(
            f"{root} has no train.{config.source} and train.{config.target} (or .gz); set "
            "data.source and data.target to what the file names end in"
        )
    return replace(
        config,
        corpus="files",
        root=None,
        train=found["train"],
        validation=found["validation"],
        test=found["test"],
    )


def _find(root: Path, names: tuple[str, ...], code: str) -> str | None:
    candidates = [root / f"{name}.{code}{suffix}" for name in names for suffix in ("", ".gz")]
    found = [str(path) for path in candidates if path.is_file()]
    if len(found) > 1:
        raise InputError(f"{' and '.join(found)}: either could be meant; take one away")
    return found[0] if found else None


def _both(
    sides: list[str | None], root: Path, split: str, config: DataConfig
) -> tuple[str, str] | None:
    source, target = sides
    if source is not None and target is not None:
        return source, target
    if source is None and target is None:
        return None
    missing = config.source if source is None else config.target
    raise InputError(
        f"{root} has {Path(source or target or '').name} but no {split} text that ends in "
        f".{missing} (or .{missing}.gz); add it, or take the other away"
    )
