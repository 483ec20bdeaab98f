"""``import``: a model of another framework becomes a run of this one."""

from collections.abc import Sequence

from transformer.interchange.import_model import import_model
from transformer.settings.commands import ImportConfig


def run(config: ImportConfig, _: Sequence[str]) -> None:
    """Import a model."""
    print(import_model(config))
