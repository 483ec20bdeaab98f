"""``export``: the model for another program, written only if it is the same there."""

import json
import sys
from collections.abc import Sequence

from transformer.commands.export import export
from transformer.settings.commands import ExportConfig


def run(config: ExportConfig, _: Sequence[str]) -> None:
    """Export a model, and show how it was verified."""
    exported = export(config)
    print(json.dumps(exported.verified), file=sys.stderr)
    print(exported.folder)
