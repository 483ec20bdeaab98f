"""Packages that few tests need and that take seconds to import: each is imported when used."""

import importlib
from typing import Any


class Lazy:
    """A package, imported when its first attribute is read.

    Args:
        name: Of the package.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


hf = Lazy("transformers")
