"""``score``: how probable the model finds given translations, one line a pair."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError

if TYPE_CHECKING:
    from transformer.decoding.forced.scorer import TargetScore

WINDOW = 4096
"""Pairs that are read before the first is answered."""


def main(arguments: Sequence[str]) -> int:
    """Score; returns the exit code."""
    return run_to_exit_code(lambda: _score(compose_config("score", arguments)))


def _score(config: DictConfig) -> None:
    if config.format not in ("text", "json"):
        raise InputError(f"format={config.format} is unknown; choose text or json")
    for score in _scores(config):
        if config.format == "json":
            print(json.dumps(score.to_json(), ensure_ascii=False))
        else:
            print(f"{score.log_probability:.6f}")


def _scores(config: DictConfig) -> "Iterator[TargetScore]":
    from transformer.cli.load import resolve_batch_tokens, tagged_tokenizer
    from transformer.cli.models import load_checkpoint_model, load_checkpoints
    from transformer.data.text.parallel import Corpus
    from transformer.decoding.forced.scorer import score_pairs
    from transformer.decoding.translation.trained import trained_with

    batch_tokens = resolve_batch_tokens(config)
    checkpoints = load_checkpoints(config.checkpoint)
    model = load_checkpoint_model(config, checkpoints)
    tokenizer = tagged_tokenizer(config, trained_with(checkpoints[0]).tokenizer)
    files = [resolve_path(config, key) for key in ("source", "target")]
    pairs = iter(Corpus.of(files, "source", "target"))
    first = 1
    while window := list(islice(pairs, WINDOW)):
        try:
            yield from score_pairs(model, tokenizer, window, batch_tokens=batch_tokens, first=first)
        except InputError as error:
            raise InputError(f"{files[0]} and {files[1]}: {error}") from error
        first += len(window)
