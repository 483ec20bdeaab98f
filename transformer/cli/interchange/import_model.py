"""``import``: a model of another framework becomes a run of this one."""

from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.cli.config.compose import verb_settings
from transformer.interchange.import_model import import_model
from transformer.settings.import_model import ImportConfig


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Import a model."""
    print(import_model(verb_settings(config, ImportConfig)))
