"""The faults to look for, and how many are allowed; the defaults are in conf/doctor.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range

CHECKS = (
    *("empty", "ratio", "misaligned", "duplicate", "leak", "leak_source", "leak_target", "copy"),
    *("numbers", "urls", "script", "language", "control", "markup", "markup_both", "replacement"),
    *("mojibake", "unknown_characters", "too_long", "not_nfc", "several_targets"),
    "several_sources",
)
"""Names of all checks, in the order of a report; docs/doctor.md describes the faults."""


def allowed_fractions(thresholds: Mapping[str, float | None]) -> dict[str, float]:
    """Return the allowed fraction of the pairs of a split by fault; None disables a check."""
    allowed = {name: limit for name, limit in thresholds.items() if limit is not None}
    raise_objections(
        f"thresholds.{name}={limit} must be from 0 to 1"
        for name, limit in allowed.items()
        if not 0 <= limit <= 1
    )
    return allowed


@dataclass(frozen=True)
class ExaminationConfig:
    """How a text is examined."""

    checks: frozenset[str] = frozenset(CHECKS)
    examples: Annotated[int, Range(0)] = 3
    """Examples of each fault to show, at most."""
    ratio: Annotated[float, Range(above=1)] = 4.0
    """A pair whose ratio of characters differs from the median by this factor is out of proportion,
    whatever the text is like."""
    max_length: int = 250
    """Tokens that a side may have (``data.max_length``)."""
    languages: tuple[str, str] = ("en", "de")
    """Codes of source and target (``data.source``, ``data.target``). The language of a side whose
    name is no code, such as a key of JSONL, is detected from its text."""
    max_pairs: int | None = None
    """Examine only the first pairs of each split; None: all."""

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, ""))
