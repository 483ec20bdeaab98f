"""The keys of ``translate``."""

from dataclasses import dataclass
from pathlib import Path

from transformer.settings.decoding import OnFailure
from transformer.settings.translator import Form, TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class TranslateConfig(TranslatorConfig):
    """What is translated, and what a translation has besides; conf/translate.yaml explains the
    keys."""

    input: Path | None = None
    output: Path | None = None
    documents: bool | None = None
    input_format: Form = "text"
    glossary: Path | None = None
    format: Form = "text"
    """Of the lines of ``output``."""
    attention: bool = False
    alignment: bool = False
    flags: bool = False
    on_failure: OnFailure | None = None
