"""The keys of ``clean``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

from transformer.common.schema import Range, Settings
from transformer.settings.data import DataConfig
from transformer.settings.doctor import Ratio, two_tokenizers
from transformer.settings.tokenizer import TokenizerConfig


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
