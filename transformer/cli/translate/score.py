"""``score``: the log-probability of given translations, one line a pair."""

import json
from collections.abc import Sequence
from itertools import islice

from omegaconf import DictConfig

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.cli.exit import run_to_exit_code
from transformer.cli.translate.line_io import is_json
from transformer.common.errors import InputError

WINDOW = 4096
"""Pairs that are read before the first is scored."""


def main(arguments: Sequence[str]) -> int:
    """Score; returns the exit code."""
    return run_to_exit_code(lambda: _score(compose_config("score", arguments)))


def _score(config: DictConfig) -> None:
    from transformer.cli.load import resolve_positive, tagged_tokenizer
    from transformer.cli.models import load_checkpoint_model, load_checkpoints
    from transformer.data.text.parallel import Corpus
    from transformer.decoding.forced import score_pairs
    from transformer.decoding.translation.trained import trained_with

    as_json, batch_tokens = is_json(config), resolve_positive(config, "batch_tokens")
    checkpoints = load_checkpoints(config.checkpoint)
    model = load_checkpoint_model(config, checkpoints)
    tokenizer = tagged_tokenizer(config, trained_with(checkpoints[0]).tokenizer)
    files = [resolve_path(config, key) for key in ("source", "target")]
    pairs = iter(Corpus.of(files, "source", "target"))
    first = 1
    while window := list(islice(pairs, WINDOW)):
        try:
            scores = score_pairs(model, tokenizer, window, batch_tokens=batch_tokens, first=first)
            for score in scores:
                line = f"{score.log_probability:.6f}"
                print(json.dumps(score.to_json(), ensure_ascii=False) if as_json else line)
        except InputError as error:
            raise InputError(f"{files[0]} and {files[1]}: {error}") from error
        first += len(window)
