"""``shortlist``: the target tokens that are searched for each source token."""

from array import array
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer.checkpoint.checkpoint import portable_part, read_payload, require_translation
from transformer.checkpoint.run_directory import find_checkpoint, run_folder
from transformer.checkpoint.trust import require_trust
from transformer.common.errors import InputError
from transformer.common.files import require_writable
from transformer.data.corpora.evaluation_text import run_split
from transformer.data.corpora.resolve import AnySplit
from transformer.data.corpora.split import Split
from transformer.data.text.lexical_translation import IdPair, ibm_model_1, linked_lexicon
from transformer.data.text.parallel import Corpus
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.shortlist import FILE, Shortlist, check_tags
from transformer.interchange.translators import fetched
from transformer.settings.commands import ShortlistConfig
from transformer.settings.run import RunConfig

CHUNK, LONGEST = 4096, 256
"""Pairs that are encoded at once; tokens of a side of a pair that Model 1 reads."""


class WrittenShortlist(NamedTuple):
    """A shortlist, and what it was counted in."""

    file: Path
    pairs: int
    method: str
    """``word links``, or ``Model 1``."""
    mean: float
    """Target tokens for a sentence on average."""
    vocabulary: int
    """All target tokens."""


def shortlist(config: ShortlistConfig) -> WrittenShortlist:
    """Count which target tokens belong to each source token, and write the shortlist."""
    path = find_checkpoint(fetched(config.checkpoint))
    payload = read_payload(path)
    require_translation(payload, path)
    portable = portable_part(payload)
    tokenizer = Tokenizer.from_state(portable.tokenizer)
    tokenizer.require_text("shortlist")
    check_tags(tokenizer)
    size = tokenizer.target_vocab_size
    output = config.output or run_folder(path) / FILE
    require_writable(output.parent)  # before the minutes of counting
    split = _text(config, portable.config)
    # Evenly from the whole text: it may be of several corpora, one after the other.
    step = max(1, -(-sum(1 for _ in split) // config.sentences))
    # The text of a file has no tags, even if the model needs some.
    cutter = tokenizer if config.source is None else tokenizer.with_tags(Tags())
    read = islice(split, 0, None, step)
    pairs: list[IdPair] = []
    while chunk := list(islice(read, CHUNK)):
        pairs += [(array("i", s), array("i", t)) for s, t in cutter.encode_pairs(chunk)]
    short = [pair for pair in pairs if all(0 < len(side) <= LONGEST for side in pair)]
    if not short:
        raise InputError(f"{split.location}: no pair has 1 to {LONGEST} tokens on each side")
    if split.links is not None:
        links = islice(split.word_links(), 0, None, step)
        texts = islice(split, 0, None, step)
        lexicon = linked_lexicon(texts, pairs, links, tokenizer)
        method = "word links"
    else:
        lexicon = ibm_model_1(short, size, config.iterations)
        method = "Model 1"
    counts = np.bincount(np.concatenate([target for _, target in pairs]), minlength=size)
    built = Shortlist.build(lexicon, counts, tokenizer, config.frequent, config.best)
    built.save(output, tokenizer)
    mean = np.mean([len(built.tokens([source])) for source, _ in pairs[:CHUNK]])
    return WrittenShortlist(output, len(pairs), method, float(mean), size)


def _text(config: ShortlistConfig, trained: RunConfig) -> AnySplit:
    """The user's files, or the training text of the run."""
    if config.source is not None and config.target is not None:
        files = [config.source, config.target]
        return Split(Corpus.of(files, "source", "target"), links=config.alignment)
    if (config.source, config.target, config.alignment) != (None, None, None):
        raise InputError("source= and target= go together, and alignment= with them")
    require_trust(trained, config.trust, config.checkpoint)
    return run_split(trained.data, "train", training=True)
