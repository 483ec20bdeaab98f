"""Finds the text of each split in a folder by file name, such as ``valid.de.gz``.

Does not read the files.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError, MissingFile
from transformer.common.files import given_path
from transformer.data.config import DataConfig, check_unused_keys

NAMES = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""Stems of the files of each split; the language follows, and optionally ``.gz``."""


def as_files(config: DataConfig) -> DataConfig:
    """Return a config of ``data.corpus=folder`` as one of ``files``, with the paths found.

    Raises:
        MissingFile: there is no folder.
        InputError: the folder has no training text, a text in one language only, or a text twice;
            or the config names files too.
    """
    check_unused_keys(config)
    if config.root is None:
        raise InputError("data=folder needs a folder; set data.root=FOLDER")
    root = given_path(config.root)
    if not root.is_dir():
        raise MissingFile(f"data.root={config.root} is no folder (seen from {Path.cwd()})")
    files: dict[str, Any] = {}
    for split, names in NAMES.items():
        sides = [_find(root, names, code) for code in (config.source, config.target)]
        found = tuple(side for side in sides if side is not None)
        if len(found) == 1 or (split == "train" and not found):
            missing = [
                c for c, s in zip((config.source, config.target), sides, strict=True) if not s
            ]
            raise InputError(
                f"{root} has no {split}.{f' and no {split}.'.join(missing)} (or .gz)"
                f"{f', only {Path(found[0]).name}' if found else ''}; add it, or set data.source "
                "and data.target to the languages that the file names end in"
            )
        files[split] = found or None
    return replace(config, corpus="files", root=None, **files)


def _find(root: Path, names: tuple[str, ...], code: str) -> str | None:
    candidates = [root / f"{name}.{code}{suffix}" for name in names for suffix in ("", ".gz")]
    found = [str(path) for path in candidates if path.is_file()]
    if len(found) > 1:
        raise InputError(f"{' and '.join(found)} are the same split; remove one")
    return found[0] if found else None
