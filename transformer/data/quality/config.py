"""The faults to look for, and how many are allowed; the defaults are in conf/doctor.yaml."""

from dataclasses import asdict, dataclass, fields
from typing import Annotated

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range

Fraction = Annotated[float, Range(0, 1)] | None


@dataclass(frozen=True)
class Thresholds:
    """The fraction of the pairs of a split that may have each fault; None disables the check.

    docs/doctor.md describes the faults.
    """

    empty: Fraction
    ratio: Fraction
    misaligned: Fraction
    duplicate: Fraction
    leak: Fraction
    leak_source: Fraction
    leak_target: Fraction
    copy: Fraction
    numbers: Fraction
    urls: Fraction
    script: Fraction
    language: Fraction
    control: Fraction
    markup: Fraction
    markup_both: Fraction
    replacement: Fraction
    mojibake: Fraction
    unknown_characters: Fraction
    too_long: Fraction
    not_nfc: Fraction
    several_targets: Fraction
    several_sources: Fraction

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, "thresholds"))

    def enabled(self) -> dict[str, float]:
        """Return the allowed fraction of each enabled check."""
        return {name: limit for name, limit in asdict(self).items() if limit is not None}


CHECKS = tuple(field.name for field in fields(Thresholds))
"""Names of all checks, in the order of a report."""


@dataclass(frozen=True)
class ExaminationConfig:
    """How a text is examined."""

    checks: frozenset[str]
    """Names of the enabled checks, of `CHECKS`."""
    examples: Annotated[int, Range(0)]
    """Examples of each fault to show, at most."""
    ratio: Annotated[float, Range(above=1)]
    """A pair whose ratio of characters differs from the median by this factor is out of proportion,
    whatever the text is like."""
    max_length: int
    """Tokens that a side may have (``data.max_length``)."""
    languages: tuple[str, str]
    """Codes of source and target (``data.source``, ``data.target``). The language of a side whose
    name is no code, such as a key of JSONL, is detected from its text."""
    max_pairs: int | None = None
    """Examine only the first pairs of each split; None: all."""

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, ""))
