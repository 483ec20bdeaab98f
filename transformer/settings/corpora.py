"""The keys of the commands that check and clean a corpus: doctor, clean, text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings
from transformer.settings.data import DataConfig
from transformer.settings.tokenizer import TokenizerConfig

Ratio = Annotated[float, Range(above=1)]
Limit = Annotated[float, Range(0, 1)] | None
"""The largest fraction of the pairs of a split that may have a fault; None does not look for it."""


@dataclass(frozen=True, kw_only=True)
class Thresholds(Settings, group="thresholds"):
    """The limit of each fault, in the order of a report."""

    empty: Limit = 0.001
    noise: Limit = 0.005
    ratio: Limit = 0.01
    misaligned: Limit = 0.0
    duplicate: Limit = 0.05
    leak: Limit = 0.01
    leak_source: Limit = 0.25
    leak_target: Limit | Literal["auto"] = "auto"
    copy: Limit = 0.01
    numbers: Limit = 0.01
    urls: Limit = 0.01
    script: Limit = 0.005
    language: Limit = 0.005
    control: Limit = 0.001
    markup: Limit = 0.005
    markup_both: Limit = 1.0
    replacement: Limit = 0.0001
    mojibake: Limit = 0.001
    unknown_characters: Limit = 0.05
    too_long: Limit = 0.05
    not_nfc: Limit = 0.01
    several_targets: Limit = 1.0
    several_sources: Limit = 1.0


CHECKS = tuple(check.name for check in fields(Thresholds))
"""Names of all checks, in the order of a report; docs/doctor.md describes the faults."""


@dataclass(frozen=True, kw_only=True)
class DoctorConfig(Settings):
    """How a corpus is examined; conf/doctor.yaml explains the keys."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig | None = None
    checkpoint: str | Path | None = None
    examples: Annotated[int, Range(0)] = 3
    ratio: Ratio = 4.0
    thresholds: Thresholds = field(default_factory=Thresholds)

    def _objections(self) -> Iterator[str]:
        return two_tokenizers(self.checkpoint, self.tokenizer)


def two_tokenizers(
    checkpoint: str | Path | None, tokenizer: TokenizerConfig | None
) -> Iterator[str]:
    """Yield an objection to a checkpoint, which has a tokenizer, and another tokenizer."""
    if checkpoint is not None and tokenizer is not None:
        yield "checkpoint= has a tokenizer; leave tokenizer= out"


@dataclass(frozen=True, kw_only=True)
class Filters(Settings, group="filters"):
    """Whether the pairs with a fault are left out."""

    empty: bool = True
    noise: bool = True
    ratio: bool = True
    misaligned: bool = True
    duplicate: bool = True
    leak: bool = True
    leak_source: bool = False
    leak_target: bool = False
    copy: bool = True
    numbers: bool = True
    urls: bool = True
    script: bool = True
    language: bool = True
    control: bool = False
    markup: bool = True
    markup_both: bool = True
    replacement: bool = True
    mojibake: bool = True
    unknown_characters: bool = False
    too_long: bool = True
    not_nfc: bool = False


@dataclass(frozen=True, kw_only=True)
class Repairs(Settings, group="repairs"):
    """What is repaired, in the order of a report."""

    encoding: bool = True
    entities: bool = True
    markup: bool = True
    invisible: bool = True
    blanks: bool = True


REPAIRS = tuple(repair.name for repair in fields(Repairs))


@dataclass(frozen=True, kw_only=True)
class CleanConfig(Settings):
    """How a corpus is cleaned; conf/clean.yaml explains the keys."""

    output: Path
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig | None = None
    splits: Sequence[str] | None = ("train",)
    checkpoint: str | Path | None = None
    ratio: Ratio = 4.0
    models: Sequence[str | Path] | None = None
    keep: Annotated[float, Range(above=0, below=1)] | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] | None = None
    trust: bool = False
    repair: bool = True
    repairs: Repairs = field(default_factory=Repairs)
    filters: Filters = field(default_factory=Filters)

    def _objections(self) -> Iterator[str]:
        yield from two_tokenizers(self.checkpoint, self.tokenizer)
        without_tokenizer = self.checkpoint is None and self.tokenizer is None
        if self.filters.unknown_characters and without_tokenizer:
            yield "filters.unknown_characters=true needs checkpoint=RUN or tokenizer=bpe"
        if self.models is None and self.keep is not None:
            yield f"keep={self.keep} is of the pairs that models= rank; give models=[RUN,REVERSE]"
        if self.models is not None and len(self.models) != 2:
            named = ",".join(map(str, self.models))
            yield f"models=[{named}] must be two; give models=[RUN,REVERSE]"


@dataclass(frozen=True, kw_only=True)
class TextConfig(Settings):
    """A corpus as plain files, ``OUTPUT/SPLIT.LANGUAGE``; conf/text.yaml explains the keys."""

    output: Path
    data: DataConfig = field(default_factory=DataConfig)
    splits: Sequence[str] | None = None
