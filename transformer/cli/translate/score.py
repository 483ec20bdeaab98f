"""``score``: the log-probability of given translations, one line a pair."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice

from omegaconf import DictConfig

from transformer.checkpoint.checkpoint import Checkpoint
from transformer.cli import load
from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.translate.line_io import Form
from transformer.common.errors import errors_name
from transformer.data.text.parallel import Corpus
from transformer.decoding.forced_decoding import TargetScore, score_pairs
from transformer.decoding.translation.translator import trained_with

Scorer = Callable[..., list[TargetScore]]
WINDOW = 4096
"""Pairs that are read before the first is scored."""


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Score the pairs."""
    as_json = resolve_value(config, "format", Form) == "json"
    score = load_scorer(config, load.load_checkpoints(config.checkpoint))
    files = [resolve_path(config, key) for key in ("source", "target")]
    pairs = iter(Corpus.of(files, "source", "target"))
    first = 1
    while window := list(islice(pairs, WINDOW)):
        with errors_name(f"{files[0]} and {files[1]}"):
            for each in score(window, first=first):
                line = f"{each.log_probability:.6f}"
                print(json.dumps(asdict(each), ensure_ascii=False) if as_json else line)
        first += len(window)


def load_scorer(config: DictConfig, checkpoints: Sequence[Checkpoint]) -> Scorer:
    """`score_pairs` of these models, by those keys that the verb has."""
    batch_tokens = load.resolve_batch_tokens(config, load.resolve_device(config.device))
    model = load.load_checkpoint_model(config, checkpoints)
    tokenizer = load.tagged_tokenizer(config, trained_with(checkpoints[0]).tokenizer)
    return partial(score_pairs, model, tokenizer, batch_tokens=batch_tokens)
