"""``score``: the log-probability of given translations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from transformer.checkpoint.checkpoint import Loaded
from transformer.common.errors import InputError, errors_name
from transformer.data.text.parallel import Corpus, file_format
from transformer.decoding.forced_decoding import TargetScore, score_pairs
from transformer.interchange.translators import load_translator
from transformer.settings.evaluation import ScoreConfig
from transformer.settings.run import RunConfig
from transformer.settings.translator import TranslatorConfig

Scorer = Callable[..., list[TargetScore]]
"""`score_pairs` of a model: takes pairs, and ``first``."""

WINDOW = 4096
"""Pairs that are read before the first is scored."""
_FILES = 64
"""Likewise, if their sources are files."""


def score_targets(
    config: ScoreConfig, *, loaded: Loaded = lambda checkpoints: None
) -> Iterator[TargetScore]:
    """Yield the score of each pair of two files, line by line, or of a file with both sides.

    ``loaded`` is told the checkpoints; ``output`` and ``launch`` are those of ``score_files``.
    Raises InputError for files of different lengths, and for a text that is longer than the model
    knows.
    """
    paths = [config.source] if config.target is None else [config.source, config.target]
    check_sides(paths, [*map(file_format, paths)])
    score, run = load_scorer(config.translator, loaded)
    corpus = Corpus.of(paths, run.data.source, run.data.target)
    reads_files = run.data.source_kind != "text"
    pairs = iter(replace(corpus, features=run.data.features, source_files=reads_files))
    size = _FILES if reads_files else WINDOW
    first = 1
    while window := list(islice(pairs, size)):
        with errors_name(" and ".join(map(str, paths))):
            yield from score(window, first=first)
        first += len(window)


def check_sides(files: Sequence[str | Path], formats: Sequence[str]) -> None:
    """Raise InputError unless one file has both sides, or two plain files have one each."""
    if [*formats] == ["plain"]:
        raise InputError(f"{files[0]} is read as plain text; give its translations as target=")
    both = [file for file, form in zip(files, formats, strict=True) if form != "plain"]
    if both and len(files) > 1:
        raise InputError(
            f"{both[0]} is not plain text: target= is for two plain files; leave it out for "
            "a file with both sides"
        )


def load_scorer(
    config: TranslatorConfig, loaded: Loaded = lambda checkpoints: None
) -> tuple[Scorer, RunConfig]:
    """`score_pairs` of a model or an ensemble, and the config of the run that trained it."""
    translator, run = load_translator(config, as_stored=config.precision is None, loaded=loaded)
    tokens = translator.batch_tokens
    score = partial(score_pairs, translator.ensemble, translator.tokenizer, batch_tokens=tokens)
    return score, run
