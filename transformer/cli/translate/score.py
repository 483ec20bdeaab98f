"""``score``: the log-probability of given translations, one line a pair."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli import translator as translators
from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.translate.line_io import Form
from transformer.common.errors import errors_name
from transformer.data.text.parallel import Corpus
from transformer.decoding.forced_decoding import TargetScore, score_pairs
from transformer.settings.run import RunConfig

Scorer = Callable[..., list[TargetScore]]
WINDOW = 4096
"""Pairs that are read before the first is scored."""


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Score the pairs."""
    as_json = resolve_value(config, "format", Form) == "json"
    score = load_scorer(config, config.checkpoint)[0]
    files = [resolve_path(config, key) for key in ("source", "target")]
    pairs = iter(Corpus.of(files, "source", "target"))
    first = 1
    while window := list(islice(pairs, WINDOW)):
        with errors_name(f"{files[0]} and {files[1]}"):
            for each in score(window, first=first):
                line = f"{each.log_probability:.6f}"
                print(json.dumps(asdict(each), ensure_ascii=False) if as_json else line)
        first += len(window)


def load_scorer(config: DictConfig, checkpoint: Any) -> tuple[Scorer, RunConfig]:
    """`score_pairs` of a model or an ensemble, by those keys that the verb has; and its run."""
    described = OmegaConf.create({**config, "checkpoint": checkpoint})
    translator, trained = translators.load(described, [])
    model, tokens = translator.ensemble, translator.batch_tokens
    return partial(score_pairs, model, translator.tokenizer, batch_tokens=tokens), trained
