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


def split_names(names: Sequence[str] | None, known: Iterable[str]) -> Sequence[str]:
    """The names in ``splits=``, which must be known; None is all."""
    known = list(known)
    if names is None:
        return known
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"splits={unknown} must name some of {', '.join(known)}")
    return names
