"""Hydra composes again and again from the same files: what does not change is computed once."""

import pickle
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult

_defaults_list = config_loader_impl.create_defaults_list
_parsed = OverridesParser.parse_rule
_joined = ConfigLoaderImpl._compose_config_from_defaults_list
# Hydra imports its plugins anew when it looks for them: only this is the class that it uses.
Plugins.instance()
_Source = SourcesRegistry.instance().resolve("file")
_load = _Source.load_config
_known: dict[Any, Any] = {}


def remember() -> None:
    """Let Hydra parse each argument once, read each file, and join the files of equal choices.

    The files under conf/ do not change. Single keys are set anew in every call.
    """
    config_loader_impl.create_defaults_list = _chosen_files
    OverridesParser.parse_rule = _parsed_rule  # type: ignore[method-assign]
    ConfigLoaderImpl._compose_config_from_defaults_list = _joined_files
    _Source.load_config = _copy_of_file  # type: ignore[method-assign]
    CachingConfigRepository.__init__ = _share_sources  # type: ignore[method-assign]


def _once(key: Any, compute: Callable[[], Any]) -> Any:
    if key not in _known:
        _known[key] = compute()
    return _known[key]


def _parsed_rule(parser: OverridesParser, text: str, rule: str) -> Any:
    key = (text, rule, *sorted(parser.functions.functions))
    return copy(_once(key, lambda: _parsed(parser, text, rule)))


def _share_sources(self: CachingConfigRepository, delegate: IConfigRepository) -> None:
    """Hydra copies them deeply, a fifth of a composition; they are replaced, never changed."""
    self.delegate, self.cache = copy(delegate), {}


def _chosen_files(repo: Any, overrides_list: list[Override], **settings: Any) -> Any:
    """The files that the choices name, and the other overrides."""
    choices, keys = list[Override](), list[Override]()
    for one in overrides_list:
        is_key = isinstance(one._value, dict) or not repo.group_exists(one.key_or_group)
        (keys if is_key else choices).append(one)
    lines = tuple(one.input_line for one in choices)
    key = (str(repo.get_sources()), lines, *settings.values())
    found = copy(_once(key, lambda: _defaults_list(repo, overrides_list=choices, **settings)))
    found.config_overrides = [one for one in keys if not one.is_sweep_override()]
    return found


def _joined_files(loader: Any, defaults: list[Any], repo: Any) -> Any:
    key = (str(repo.get_sources()), str(defaults))
    return pickle.loads(_once(key, lambda: pickle.dumps(_joined(loader, defaults, repo))))


@cache
def _file(provider: str, folder: str, name: str) -> bytes:
    """Pickled: a fifth of the time that a deep copy takes."""
    return pickle.dumps(_load(_Source(provider, folder), name))


def _copy_of_file(source: Any, config_path: str) -> ConfigResult:
    return pickle.loads(_file(source.provider, source.path, config_path))
