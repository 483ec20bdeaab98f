"""Which of the keys that name a text each kind of corpus reads; the others would do nothing.

Does not look at files.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from transformer.common.errors import InputError
from transformer.data.config import DataConfig

_KEYS = ("root", "train", "validation", "test", "document_key")
# What is fetched has files of its own, which a folder may hold already.
_READ = {
    "pocket": (),
    "folder": ("root",),
    "files": ("train", "validation", "test", "document_key"),
}
_FETCHED = ("root",)


def _idle(config: DataConfig) -> list[str]:
    read = _READ.get(config.corpus, _FETCHED)
    return [key for key in _KEYS if key not in read and getattr(config, key) is not None]


def check_unused_keys(config: DataConfig) -> None:
    """Refuse a text that is named and would not be read.

    Raises:
        InputError: there is one.
    """
    for key in _idle(config):
        other = {"root": "set data=folder, or ", "document_key": ""}.get(key, "set data=files, or ")
        raise InputError(
            f"data.{key} is not read with data.corpus={config.corpus}; {other}leave data.{key} out"
        )


def without_idle_keys(config: DataConfig, own: Collection[str]) -> DataConfig:
    """Return the config of one of several corpora without what is said for others.

    Args:
        config: its own keys, and those for all.
        own: names of its own, which stay.
    """
    idle: dict[str, Any] = {key: None for key in _idle(config) if key not in own}
    return replace(config, **idle)


def check_keys_of_corpora(config: DataConfig, ones: Iterable[DataConfig]) -> None:
    """Refuse a text that is named for all corpora and read by none.

    Args:
        config: of all.
        ones: those of each, from `without_idle_keys`.

    Raises:
        InputError: there is one.
    """
    ones = list(ones)
    for key in _KEYS:
        given = getattr(config, key)
        if given is not None and all(getattr(one, key) != given for one in ones):
            raise InputError(
                f"data.{key} is read by no corpus of data.corpora; give it an entry of its own "
                "there, or leave it out"
            )
