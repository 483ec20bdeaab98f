"""``select``: of each n-best list the candidate that a reference or a reverse model chooses."""

from collections.abc import Callable, Iterator, Sequence

from omegaconf import DictConfig, OmegaConf

from transformer.cli.translator import set_threads, translator_config
from transformer.commands import select as commands
from transformer.settings.metrics import MetricsConfig
from transformer.settings.select import SelectConfig


def run(config: SelectConfig, _: Sequence[str]) -> None:
    """Select the candidates."""
    commands.select(config, loaded=set_threads)


def candidate_choice(
    config: DictConfig, metrics: MetricsConfig, languages: tuple[str, str] | None = None
) -> Callable[..., Iterator[str]]:
    """`select.candidate_choice`, by those keys that the verb has."""
    described = OmegaConf.create({**config, "checkpoint": config.reverse})
    reverse = None if config.reverse is None else translator_config(described, [])
    return commands.candidate_choice(reverse, metrics, languages, loaded=set_threads)
