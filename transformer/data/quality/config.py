"""What is looked for, and how much of it is too much; the defaults stand in conf/doctor.yaml.

Does not know how anything is found.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from transformer.common.errors import InputError


@dataclass(frozen=True)
class Thresholds:
    """The share of the pairs of a split that may have each fault; None does not look for it."""

    empty: float | None
    """A side without text."""
    ratio: float | None
    """One side says much more than the other, for this text, or the same twice."""
    misaligned: float | None
    """Part of a stretch in which source and target are shifted, or do not belong together."""
    duplicate: float | None
    """The same pair once more."""
    leak: float | None
    """A validation or test pair that is in the training text, but for case and punctuation."""
    leak_source: float | None
    """A validation or test source in the training text, whatever its translation there."""
    leak_target: float | None
    """The same of the target."""
    copy: float | None
    """The target is the source, in words that the corpus translates."""
    numbers: float | None
    """Each side has a number that the other lacks."""
    urls: float | None
    """Each side has an address, of a page or of mail, that the other lacks."""
    script: float | None
    """Written in a script that the side does not use."""
    language: float | None
    """Surely in another language than the side (needs py3langid)."""
    control: float | None
    """Control and invisible characters, U+2028, soft hyphens, tabs, private use."""
    markup: float | None
    """HTML or XML tags and entities on one side only."""
    markup_both: float | None
    """The same on both sides."""
    replacement: float | None
    """U+FFFD, in place of a character that was lost."""
    mojibake: float | None
    """Read in another encoding than written in, as can be undone (needs ftfy)."""
    unknown_characters: float | None
    """Characters that the tokenizer spells in bytes; without one, those that only validation or
    test text has."""
    too_long: float | None
    """A side of more tokens than ``data.max_length``."""
    not_nfc: float | None
    """Not in Unicode's normal form C, which translations are written in."""
    several_targets: float | None
    """A source that occurred before with another target."""
    several_sources: float | None
    """A target that occurred before with another source."""

    def __post_init__(self) -> None:
        for name, share in asdict(self).items():
            if share is not None and not 0 <= share <= 1:
                raise InputError(
                    f"thresholds.{name}={share} is no share of the pairs; set 0 to 1, or null not "
                    "to look for it"
                )

    def shares(self) -> dict[str, float]:
        """Return what is looked for, and the share that is allowed."""
        return {name: share for name, share in asdict(self).items() if share is not None}


CHECKS = tuple(field.name for field in fields(Thresholds))
"""All that can be looked for, in the order of a report."""


@dataclass(frozen=True)
class ExaminationConfig:
    """How a text is examined."""

    checks: frozenset[str]
    """Names of the faults to look for, of those that `Thresholds` has."""
    examples: int
    """Of each fault to show, at most."""
    ratio: float
    """A pair is out of proportion at the latest if its ratio of characters is so many times the
    usual one of the text, or so many times smaller."""
    max_length: int
    """Tokens that a side may have (``data.max_length``)."""
    languages: tuple[str, str]
    """Codes of source and target (``data.source``, ``data.target``); anything else, such as a key
    of JSONL, lets the text itself tell."""
    most: int | None = None
    """Pairs of each split that are examined, from the first on; None: all."""

    def __post_init__(self) -> None:
        if self.examples < 0:
            raise InputError(f"examples={self.examples} must be at least 0")
        if self.ratio <= 1:
            raise InputError(f"ratio={self.ratio} must be above 1")


def exceeded(shares: Mapping[str, float], check: str, share: float) -> bool:
    """Whether a share of faulty pairs is more than is allowed."""
    return check in shares and share > shares[check]
