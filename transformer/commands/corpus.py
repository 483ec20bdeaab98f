"""What ``doctor``, ``clean`` and ``text`` share: one corpus, and its splits."""

from collections.abc import Iterable, Sequence

from transformer.common.errors import InputError
from transformer.settings.data import DataConfig


def one_corpus(data: DataConfig) -> DataConfig:
    """The settings of a corpus; InputError for several, and for a stream."""
    if data.corpora or data.streaming:
        raise InputError(
            "data.corpora and data.streaming are for training; give one corpus, as data=files "
            "data.train=… data.source=… data.target=…"
        )
    return data


def text_corpus(data: DataConfig, verb: str) -> DataConfig:
    """`one_corpus` for a command that reads its sources as text; InputError if they are files."""
    if data.source_kind != "text":
        raise InputError(
            f"{verb} reads source text, and data.source_kind={data.source_kind}; training reads "
            "each file before its first update, and names one that it cannot read"
        )
    return one_corpus(data)


def split_names(names: Sequence[str] | None, known: Iterable[str]) -> Sequence[str]:
    """The names in ``splits=``, which must be known; None is all."""
    known = list(known)
    if names is None:
        return known
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"splits={unknown} must name some of {', '.join(known)}")
    return names
