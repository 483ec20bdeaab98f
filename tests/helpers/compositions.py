"""Configs that are composed again and again are composed once."""

from copy import deepcopy
from functools import cache, lru_cache

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig

from transformer.cli.config import compose

_compose = compose.compose
_load = FileConfigSource.load_config


def remember() -> None:
    """Let Hydra compose each of the latest calls once: the files under conf/ do not change.

    It reads them once, too: parsing YAML is a quarter of a composition.
    """
    compose.compose = _copy  # type: ignore[attr-defined]
    FileConfigSource.load_config = _copy_of_file  # type: ignore[method-assign]


@lru_cache(maxsize=100)
def _once(verb: str, overrides: tuple[str, ...], return_hydra_config: bool) -> DictConfig:
    return _compose(verb, list(overrides), return_hydra_config)


def _copy(
    verb: str, overrides: list[str] | None = None, return_hydra_config: bool = False
) -> DictConfig:
    return deepcopy(_once(verb, tuple(overrides or ()), return_hydra_config))


@cache
def _file(provider: str, folder: str, name: str) -> ConfigResult:
    return _load(FileConfigSource(provider, folder), name)


def _copy_of_file(source: FileConfigSource, config_path: str) -> ConfigResult:
    return deepcopy(_file(source.provider, source.path, config_path))
