"""``doctor``: the faults of a corpus, and which are more frequent than they may be."""

import time
from collections.abc import Iterable, Mapping

from transformer.checkpoint.checkpoint import portable_part, read_payload
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.commands.corpus import text_corpus
from transformer.common.files import given_path, locked
from transformer.data.corpora.split import Split
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.data.tokenization.vocabulary_training import (
    VocabularyTooLarge,
    largest_vocabulary,
)
from transformer.interchange.translators import fetched
from transformer.quality.check import ExaminationConfig
from transformer.quality.examination import Report, examine, given_texts, to_json
from transformer.settings.corpora import CleanConfig, DoctorConfig


def doctor(config: DoctorConfig, *, fit_vocabulary: bool = False) -> Report:
    """Examine a corpus; returns the plain values that the command prints.

    ``report["exceeded"]`` names the faults above their thresholds. With ``fit_vocabulary``, a
    vocabulary that is too large for the text gets the largest possible size. Raises InputError if a
    text cannot be read.
    """
    data = text_corpus(config.data, "doctor")
    thresholds = vars(config.thresholds) | {"leak_target": _leak_target(config)}
    allowed = {name: limit for name, limit in thresholds.items() if limit is not None}
    settings = examination_config(config, allowed, config.examples)
    splits = given_texts(data)
    tokenizer = corpus_tokenizer(config, splits, fit_vocabulary=fit_vocabulary)
    start = time.perf_counter()
    examination = examine(splits, settings, tokenizer)
    speed = round(sum(examination.pairs.values()) / (time.perf_counter() - start))
    return {**to_json(examination, splits, allowed), "pairs_per_second": speed}


def _leak_target(config: DoctorConfig) -> float | None:
    limit = config.thresholds.leak_target
    if limit != "auto":
        return limit
    # Without a ratio, the text is no translation: its targets, as actions of commands, may recur.
    return 1.0 if config.data.max_ratio is None else 0.25


def corpus_tokenizer(
    config: DoctorConfig | CleanConfig, splits: Mapping[str, Split], *, fit_vocabulary: bool
) -> Tokenizer | None:
    """The tokenizer of a checkpoint, or a new one of the training text; None without both.

    With ``fit_vocabulary``, a vocabulary that is too large for the text gets the largest possible
    size.
    """
    if config.checkpoint is not None:
        portable = portable_part(read_payload(find_checkpoint(fetched(config.checkpoint))))
        # The text has no tags, even if the model needs some.
        return Tokenizer.from_state(portable.tokenizer).with_tags(Tags())
    settings = config.tokenizer
    if settings is None:
        return None
    cache = given_path(config.data.cache)
    train = splits["train"]
    with locked(cache):
        content = train.fingerprint(cache)
        while True:
            try:
                return Tokenizer.train(settings, train.__iter__, cache, content, train.location)
            except VocabularyTooLarge as error:
                if not fit_vocabulary:
                    raise
                settings = largest_vocabulary(settings, error)


def examination_config(
    config: DoctorConfig | CleanConfig, checks: Iterable[str], examples: int
) -> ExaminationConfig:
    """Which checks run, and their settings; without a ratio of lengths, they tell no shift."""
    data = config.data
    lengths_tell = data.max_ratio is not None
    return ExaminationConfig(
        checks=frozenset(name for name in checks if lengths_tell or name != "misaligned"),
        examples=examples,
        ratio=config.ratio,
        max_length=data.max_length,
        languages=(data.source, data.target),
    )
