"""Settings of a translator that is loaded, and the keys of ``translate`` and ``predict``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from transformer.common.schema import Range, Settings
from transformer.settings.decoding import OnFailure, SearchConfig
from transformer.settings.model import Precision

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Averaging = Literal["probability", "log_probability"]
EngineName = Literal["torch", "ctranslate2", "auto"]
Form = Literal["text", "json"]
"""The format of lines."""
SubtitleForm = Literal["srt", "vtt"]
"""The format of the cues of one sound."""
OutputForm = Form | SubtitleForm


def is_subtitles(form: OutputForm) -> "TypeIs[SubtitleForm]":
    """Whether an output is the cues of one sound, which are no lines."""
    return form in get_args(SubtitleForm)


Launch = Literal["ray"]
"""What runs a command on many machines."""

NO_CHECKPOINT = "checkpoint= names no model; give one or more"


@dataclass(frozen=True, kw_only=True)
class TranslatorConfig(Settings):
    """Which checkpoints translate, and how: keys of ``translate`` and other commands."""

    checkpoint: str | Sequence[str] = field(kw_only=False)
    """A run directory, a checkpoint file, an export or ``hf://USER/MODEL``; several are an
    ensemble."""
    averaging: Averaging | None = None
    """Of an ensemble; None is ``probability``."""
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    """``to``, ``tag`` and ``from_``: the tags of a source without any."""
    heads_off: str | Sequence[str] | None = None
    alignment_head: str | None = None
    """``LAYER.HEAD``; None is that of the run."""
    alignment_threshold: float | None = None
    device: str = "cpu"
    precision: Precision | None = None
    """None is bfloat16 on a GPU that has it, else float32."""
    batch_tokens: Annotated[int, Range(1)] | None = None
    """None suits the device."""
    engine: EngineName = "torch"
    engine_folder: Path | None = None
    trust: bool = False
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)
    """Changes of the run's own search by key, such as ``{"beam_size": 10}``, or a whole search."""

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        if not self.checkpoint:
            yield NO_CHECKPOINT

    @classmethod
    def of(cls, keys: Settings, checkpoint: str | Sequence[str]) -> "TranslatorConfig":
        """The translator of a command: each field that is also one of the command's ``keys``."""
        names = {field.name for field in fields(keys)}  # type: ignore[arg-type]
        shared = {field.name for field in fields(cls)} & names - {"checkpoint"}
        return cls(checkpoint, **{name: getattr(keys, name) for name in shared})

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The names of all checkpoints."""
        names = self.checkpoint
        return (names,) if isinstance(names, str) else tuple(names)


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
    format: OutputForm = "text"
    """Of the lines of ``output``, or of the cues of one sound."""
    attention: bool = False
    alignment: bool = False
    timestamps: bool = False
    flags: bool = False
    on_failure: OnFailure | None = None

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        if self.launch is not None and None in (self.input, self.output):
            yield f"launch={self.launch} reads and writes files; set input= and output="
        if self.join and self.launch is None:
            yield "join=true is for launch=ray; leave it out"
        if self.launch is not None and self.has_subtitles:
            yield f"format={self.format} is of one sound; leave out launch={self.launch}"

    @property
    def has_subtitles(self) -> bool:
        """Whether ``output`` is the cues of one sound."""
        return is_subtitles(self.format)


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Settings):
    """A tagger or a language model, and what it reads; conf/predict.yaml explains the keys."""

    checkpoint: str = field(kw_only=False)
    input: Path | None = None
    output: Path | None = None
    format: Form = "text"
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] | None = None
    trust: bool = False
