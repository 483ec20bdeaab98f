"""The faults to look for, and how many are allowed; the defaults are in conf/doctor.yaml."""

from dataclasses import asdict, dataclass, fields
from typing import Annotated

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range

Fraction = Annotated[float, Range(0, 1)] | None


@dataclass(frozen=True)
class Thresholds:
    """The fraction of the pairs of a split that may have each fault; None disables the check."""

    empty: Fraction
    """A side without text."""
    ratio: Fraction
    """One side says much more than the other, for this text, or everything twice."""
    misaligned: Fraction
    """Part of a stretch in which source and target are shifted, or do not belong together."""
    duplicate: Fraction
    """The same pair occurred earlier."""
    leak: Fraction
    """A validation or test pair is in the training text, ignoring case and punctuation."""
    leak_source: Fraction
    """A validation or test source is in the training text, with any translation."""
    leak_target: Fraction
    """A validation or test target is in the training text, with any source."""
    copy: Fraction
    """The target is the source, in words that the corpus translates."""
    numbers: Fraction
    """Each side has a number that the other lacks."""
    urls: Fraction
    """Each side has an address, of a page or of mail, that the other lacks."""
    script: Fraction
    """Most letters are of a script that the side does not use."""
    language: Fraction
    """Certainly in another language than the side (needs py3langid)."""
    control: Fraction
    """Control and invisible characters, U+2028, soft hyphens, tabs, private use."""
    markup: Fraction
    """HTML or XML tags and entities on one side only."""
    markup_both: Fraction
    """HTML or XML tags and entities on both sides."""
    replacement: Fraction
    """U+FFFD, in place of a character that was lost."""
    mojibake: Fraction
    """Read in another encoding than written in, if that can be undone (needs ftfy)."""
    unknown_characters: Fraction
    """Characters that the tokenizer spells in bytes; without a tokenizer, characters of validation
    or test text that the training text lacks."""
    too_long: Fraction
    """A side of more tokens than ``data.max_length``."""
    not_nfc: Fraction
    """Not in Unicode's normal form C, in which translations are written."""
    several_targets: Fraction
    """A source that occurred before with another target."""
    several_sources: Fraction
    """A target that occurred before with another source."""

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
