"""``score``: the log-probability of given translations, one line a pair."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.translator import set_threads, translator_config
from transformer.commands import score
from transformer.commands.score import Scorer, score_targets
from transformer.settings.run import RunConfig
from transformer.settings.score import ScoreConfig


def run(config: ScoreConfig, _: Sequence[str]) -> None:
    """Score the pairs."""
    for each in score_targets(config, loaded=set_threads):
        line = f"{each.log_probability:.6f}"
        as_json = config.format == "json"
        print(json.dumps(asdict(each), ensure_ascii=False) if as_json else line)


def load_scorer(config: DictConfig, checkpoint: Any) -> tuple[Scorer, RunConfig]:
    """`score.load_scorer`, by those keys that the verb has."""
    described = OmegaConf.create({**config, "checkpoint": checkpoint})
    return score.load_scorer(translator_config(described, []), set_threads)
