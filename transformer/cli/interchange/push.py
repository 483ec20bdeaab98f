"""``push``: a model is exported, verified, and uploaded to the Hugging Face Hub with its card."""

import json
import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.cli.config.compose import verb_settings
from transformer.common.files import HUB
from transformer.interchange.export import push
from transformer.settings.push import PushConfig


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Push a model, and show how it was verified."""
    settings = verb_settings(config, PushConfig)
    found = push(settings)
    print(json.dumps(found.verified), file=sys.stderr)
    if settings.dry_run:
        name = settings.repo.removeprefix(HUB)
        print(f"dry_run=true: nothing is uploaded to {name}; this is the folder", file=sys.stderr)
    print(found.where)
