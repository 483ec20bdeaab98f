"""``push``: a model is exported, verified, and uploaded to the Hugging Face Hub with its card."""

import json
import sys
from collections.abc import Sequence

from transformer.commands.export import push
from transformer.common.files import HUB
from transformer.settings.commands import PushConfig


def run(config: PushConfig, _: Sequence[str]) -> None:
    """Push a model, and show how it was verified."""
    pushed = push(config)
    print(json.dumps(pushed.verified), file=sys.stderr)
    if config.dry_run:
        name = config.repo.removeprefix(HUB)
        print(f"dry_run=true: nothing is uploaded to {name}; this is the folder", file=sys.stderr)
    print(pushed.where)
