"""What ``doctor``, ``clean`` and ``text`` share: a corpus, its splits, tokenizer and checks."""

from collections.abc import Iterable, Mapping, Sequence

from transformer.checkpoint.checkpoint import portable_part, read_payload
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.common.errors import InputError
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
from transformer.settings.corpora import CleanConfig, DoctorConfig
from transformer.settings.data import DataConfig


def one_corpus(data: DataConfig) -> DataConfig:
    """The settings of a corpus; InputError for several, and for a stream."""
    if data.corpora or data.streaming:
        raise InputError(
            "data.corpora and data.streaming are for training; give one corpus, as data=files "
            "data.train=… data.source=… data.target=…"
        )
    return data


def split_names(names: Sequence[str] | None, known: Iterable[str]) -> Sequence[str]:
    """The names in ``splits=``, which must be known; None is all."""
    known = list(known)
    if names is None:
        return known
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"splits={unknown} must name some of {', '.join(known)}")
    return names


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
    settings, cache, train = config.tokenizer, given_path(config.data.cache), splits["train"]
    if settings is None:
        return None
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
