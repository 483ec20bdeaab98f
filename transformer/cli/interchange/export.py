"""``export``: the model for another program, written only if it is the same there."""

import json
import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.cli.config.compose import verb_settings
from transformer.interchange.export import export
from transformer.settings.export import ExportConfig


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Export a model, and show how it was verified."""
    found = export(verb_settings(config, ExportConfig))
    print(json.dumps(found.verified), file=sys.stderr)
    print(found.folder)
