"""The keys of ``translate``."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformer.settings.decoding import OnFailure
from transformer.settings.translator import Form, Launch, TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class TranslateConfig(TranslatorConfig):
    """What is translated, and what a translation has besides; conf/translate.yaml explains the
    keys."""

    input: str | Path | None = None
    output: str | Path | None = None
    launch: Launch | None = None
    join: bool = False
    """With ``launch``: ``output`` is one file of lines, not a folder."""
    documents: bool | None = None
    input_format: Form = "text"
    glossary: Path | None = None
    format: Form = "text"
    """Of the lines of ``output``."""
    attention: bool = False
    alignment: bool = False
    flags: bool = False
    on_failure: OnFailure | None = None

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        if self.launch is not None and None in (self.input, self.output):
            yield f"launch={self.launch} reads and writes files; set input= and output="
        if self.join and self.launch is None:
            yield "join=true is for launch=ray; leave it out"
