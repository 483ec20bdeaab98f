"""Code of the user that a config names as ``MODULE:NAME``: a metric, a task, callbacks, layers.

Importing runs code, so modules are imported for a config that the user has written or trusts.
"""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TypeVar

from transformer.common.errors import InputError

T = TypeVar("T")

TRUST = "TRANSFORMER_TRUST"
"""Environment variable: ``true`` trusts all checkpoints."""


def own_module(name: str) -> ModuleType:
    """Import a module on PYTHONPATH or in the working folder; raises what the import raises."""
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    return import_module(name)


def import_code(named: Iterable[tuple[str, str]]) -> None:
    """Import the modules of (key, ``MODULE:CLASS``); InputError if one cannot be imported."""
    for key, name in named:
        try:
            own_module(name.partition(":")[0])
        except Exception as error:  # the module is the user's
            raise InputError(
                f"{key}={name} cannot be imported ({type(error).__name__}: {error}); give "
                "MODULE:CLASS of a module in this folder or on PYTHONPATH"
            ) from error


def own_class(key: str, name: str, kind: type[T]) -> type[T]:
    """The class ``MODULE:CLASS``; InputError if it is not imported, or not of the kind."""
    module, _, attribute = name.partition(":")
    if module not in sys.modules:
        if os.environ.get(TRUST) != "true":
            raise InputError(
                f"{key}={name} is code of a user; if you trust it, set {TRUST}=true, or import "
                f"{module} before"
            )
        import_code([(key, name)])
    found = getattr(sys.modules[module], attribute, None)
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise InputError(f"{key}={name} is no {kind.__name__}; name a subclass as MODULE:CLASS")
    return found
