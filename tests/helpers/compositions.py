"""Configs that are composed again and again are composed once."""

from copy import deepcopy
from functools import lru_cache

from omegaconf import DictConfig

from transformer.cli.config import compose

_compose = compose.compose


def remember() -> None:
    """Let Hydra compose each of the latest calls once: the files under conf/ do not change."""
    compose.compose = _copy  # type: ignore[attr-defined]


@lru_cache(maxsize=100)
def _once(verb: str, overrides: tuple[str, ...], return_hydra_config: bool) -> DictConfig:
    return _compose(verb, list(overrides), return_hydra_config)


def _copy(
    verb: str, overrides: list[str] | None = None, return_hydra_config: bool = False
) -> DictConfig:
    return deepcopy(_once(verb, tuple(overrides or ()), return_hydra_config))
