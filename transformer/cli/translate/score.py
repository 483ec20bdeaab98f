"""``score``: the log-probability of given translations, one line a pair."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from transformer.cli.threads import set_threads
from transformer.commands.score import score_targets
from transformer.settings.evaluation import ScoreConfig


def run(config: ScoreConfig, _: Sequence[str]) -> None:
    """Score the pairs."""
    if config.launch is not None:
        from transformer.cli.translate.launch import launch  # a plain call needs less

        launch(config)
        return
    for score in score_targets(config, loaded=set_threads):
        if config.format == "json":
            print(json.dumps(asdict(score), ensure_ascii=False))
        else:
            print(f"{score.log_probability:.6f}")
