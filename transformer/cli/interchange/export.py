"""``export``: the model for another program, written only if it is the same there."""

import json
import sys
from collections.abc import Sequence

from transformer.interchange.export import export
from transformer.settings.export import ExportConfig


def run(config: ExportConfig, _: Sequence[str]) -> None:
    """Export a model, and show how it was verified."""
    found = export(config)
    print(json.dumps(found.verified), file=sys.stderr)
    print(found.folder)
