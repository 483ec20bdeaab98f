"""``shortlist``: the target tokens that are searched for each source token."""

import sys
from array import array
from collections.abc import Sequence
from itertools import islice

import numpy as np
from omegaconf import DictConfig

from transformer.checkpoint.checkpoint import portable_part, read_payload, require_translation
from transformer.checkpoint.locate import find_checkpoint, run_folder
from transformer.cli.config.compose import resolve_path, resolve_positive
from transformer.cli.evaluate.scored_text import require_trusted
from transformer.common.errors import InputError
from transformer.data.corpora.evaluation_text import run_split
from transformer.data.corpora.mixture import AnySplit
from transformer.data.corpora.split import Split
from transformer.data.text.lexical_translation import IdPair, ibm_model_1, linked_lexicon
from transformer.data.text.parallel import Corpus
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.shortlist import FILE, Shortlist, check_tags
from transformer.settings.run import RunConfig

CHUNK, LONGEST = 4096, 256
"""Pairs that are encoded at once; tokens of a side of a pair that Model 1 reads."""


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Count, and write the shortlist."""
    keys = ("frequent", "best", "iterations", "sentences")
    frequent, best, iterations, most = (resolve_positive(config, key) for key in keys)
    path = find_checkpoint(resolve_path(config, "checkpoint"))
    payload = read_payload(path)
    require_translation(payload, path)
    portable = portable_part(payload)
    tokenizer = Tokenizer.from_state(portable.tokenizer)
    check_tags(tokenizer)
    size = tokenizer.target_vocab_size
    split = _text(config, portable.config)
    # Evenly from the whole text: it may be of several corpora, one after the other.
    step = max(1, -(-sum(1 for _ in split) // most))
    # The text of a file has no tags, even if the model needs some.
    cutter = tokenizer if config.source is None else tokenizer.with_tags(Tags())
    read, pairs = islice(split, 0, None, step), list[IdPair]()
    while chunk := list(islice(read, CHUNK)):
        pairs += [(array("i", s), array("i", t)) for s, t in cutter.encode_pairs(chunk)]
    short = [pair for pair in pairs if all(0 < len(side) <= LONGEST for side in pair)]
    if not short:
        raise InputError(f"{split.location}: no pair has 1 to {LONGEST} tokens on each side")
    if split.links is not None:
        links = islice(split.word_links(), 0, None, step)
        lexicon, method = linked_lexicon(pairs, links, tokenizer), "word links"
    else:
        lexicon, method = ibm_model_1(short, size, iterations), "Model 1"
    counts = np.bincount(np.concatenate([target for _, target in pairs]), minlength=size)
    found = Shortlist.build(lexicon, counts, tokenizer, frequent, best)
    output = resolve_path(config, "output", run_folder(path) / FILE)
    found.save(output, tokenizer)
    mean = np.mean([len(found.tokens([source])) for source, _ in pairs[:CHUNK]])
    shown = f"{mean:,.0f} of {size:,} tokens for a sentence on average"
    print(f"{len(pairs):,} pairs, by {method}: {shown}", file=sys.stderr)
    print(output)


def _text(config: DictConfig, trained: RunConfig) -> AnySplit:
    """The user's files, or the training text of the run."""
    files = [config[key] and resolve_path(config, key) for key in ("source", "target", "alignment")]
    *sides, links = files
    if None not in sides:
        return Split(Corpus.of(sides, "source", "target"), links=links)
    if files != [None] * 3:
        raise InputError("source= and target= go together, and alignment= with them")
    require_trusted(config, trained)
    return run_split(trained.data, "train", training=True)
