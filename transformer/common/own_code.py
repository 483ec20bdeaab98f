"""Code of the user, ``MODULE:NAME``; importing runs it, so its config must be trusted."""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TypeVar

from transformer.common.errors import InputError

T = TypeVar("T")

_LIBRARIES = {"transformer", "torch", "pytorch_lightning", *sys.stdlib_module_names}
"""Always imported, and no code of a user: a stranger's checkpoint must not choose among them."""

_named: set[str] = set()
"""Modules that `import_code` has imported."""

TRUST = "TRANSFORMER_TRUST"
"""Environment variable: ``true`` trusts all checkpoints."""


def trusts_all() -> bool:
    """Whether the user trusts every checkpoint."""
    return os.environ.get(TRUST) == "true"


def own_module(name: str) -> ModuleType:
    """Import a module on PYTHONPATH or in the working folder; raises what the import raises."""
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    return import_module(name)


def import_code(named: Iterable[tuple[str, str]]) -> None:
    """Import the modules of (key, ``MODULE:CLASS``); InputError if one cannot be imported."""
    for key, name in named:
        module = name.partition(":")[0]
        try:
            own_module(module)
            _named.add(module)
        except Exception as error:  # the module is the user's
            raise InputError(
                f"{key}={name} cannot be imported ({type(error).__name__}: {error}); give "
                "MODULE:CLASS of a module in this folder or on PYTHONPATH"
            ) from error


def own_class(key: str, name: str, kind: type[T]) -> type[T]:
    """The class ``MODULE:CLASS``; InputError if it is not imported, or not of the kind."""
    module, _, attribute = name.partition(":")
    is_library = module.partition(".")[0] in _LIBRARIES
    if module not in _named and (is_library or module not in sys.modules):
        if not trusts_all():
            raise InputError(
                f"{key}={name} is code of a user; add trust=true if you trust it, set {TRUST}=true "
                f"for all of your own, or in a program import {module} before"
            )
        import_code([(key, name)])
    value = getattr(sys.modules[module], attribute, None)
    if not (isinstance(value, type) and issubclass(value, kind)):
        raise InputError(f"{key}={name} is no {kind.__name__}; name a subclass as MODULE:CLASS")
    return value
