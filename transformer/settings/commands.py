"""The keys of the commands on checkpoints and models: export, serve, average, report and others.

Commands that score or compare are in evaluation.py, those on corpora in corpora.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from transformer.common.schema import Range, Settings
from transformer.settings.decoding import OnFailure, SearchConfig
from transformer.settings.evaluation import ChoiceKeys
from transformer.settings.model import Precision
from transformer.settings.translator import NO_CHECKPOINT, EngineName, TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class AverageConfig(Settings):
    """The newest checkpoints of a run, to be averaged; conf/average.yaml explains the keys."""

    checkpoint: Path = field(kw_only=False)
    last: int | None = None
    output: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ConsolidateConfig(Settings):
    """A checkpoint of several files, and the file to write; conf/consolidate.yaml explains them."""

    checkpoint: Path = field(kw_only=False)
    output: Path


Quantization = Literal["float32", "int8", "int8_float32", "int16", "float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Settings):
    """What is exported, and how it is verified; ``format`` is a key of ``FORMATS``."""

    checkpoint: str = field(kw_only=False)
    format: str = "ctranslate2"
    quantization: Quantization = "float32"
    sentences: Annotated[int, Range(1)] | None = 500
    license: str = "unknown"
    max_bleu_loss: float = 0.3
    output: Path | None = None
    onnxruntime_web: Path | None = None
    repo: str | None = None
    """The name of the model on the Hub, for its model card."""
    heads_off: str | Sequence[str] | None = None
    batch_tokens: Annotated[int, Range(1)] = 4096
    trust: bool = False

    @property
    def translator(self) -> TranslatorConfig:
        """The translator that is exported, with the search of its run."""
        return TranslatorConfig.of(self, self.checkpoint)


@dataclass(frozen=True, kw_only=True)
class PushConfig(Settings):
    """What is uploaded to the Hugging Face Hub, and under which name."""

    checkpoint: str = field(kw_only=False)
    repo: str
    private: bool = False
    dry_run: bool = False
    output: Path | None = None
    format: Literal["huggingface", "safetensors"] = "huggingface"
    license: str = "unknown"
    sentences: Annotated[int, Range(1)] | None = 500
    max_bleu_loss: float = 0.3
    batch_tokens: Annotated[int, Range(1)] = 4096
    trust: bool = False

    def export(self, repo: str) -> ExportConfig:
        """The export that is uploaded as the model ``repo``."""
        return ExportConfig(
            self.checkpoint,
            format=self.format,
            repo=repo,
            license=self.license,
            sentences=self.sentences,
            max_bleu_loss=self.max_bleu_loss,
            batch_tokens=self.batch_tokens,
            trust=self.trust,
        )


@dataclass(frozen=True, kw_only=True)
class ImportConfig(Settings):
    """Which model of another framework becomes a run.

    Without ``output`` a model of the Hub becomes a run in the cache, once for each of its commits.
    ``tokenizer``, ``decoder_layers`` and ``seed`` are those of the new decoder of an encoder alone.
    """

    checkpoint: str = field(kw_only=False)
    output: Path | None = None
    languages: str | None = None
    validation: str | Sequence[str] | None = None
    test: str | Sequence[str] | None = None
    tokenizer: Path | None = None
    decoder_layers: Annotated[int, Range(1, 1000)] = 4
    seed: Annotated[int, Range(0, below=2**63)] = 1

    @property
    def has_new_decoder(self) -> bool:
        """Whether a new decoder is described."""
        keys = ("tokenizer", "decoder_layers", "seed")
        return any(
            getattr(self, key.name) != key.default for key in fields(self) if key.name in keys
        )

    def _objections(self) -> Iterator[str]:
        keys_of_the_run = (self.languages, self.validation, self.test)
        changed = any(value is not None for value in keys_of_the_run)
        if self.output is None and (changed or self.has_new_decoder):
            yield (
                "languages=, validation=, test=, tokenizer=, decoder_layers= and seed= change the "
                "run, which the cache keeps for everyone; give output=FOLDER"
            )


@dataclass(frozen=True)
class Limits(Settings, group="limits"):
    """How much the clients of a server may ask; None sets no limit."""

    characters: Annotated[int, Range(1)] | None = 20_000
    texts: Annotated[int, Range(1)] | None = None
    alternatives: Annotated[int, Range(0)] = 10
    requests: Annotated[int, Range(1)] | None = None
    body_bytes: Annotated[int, Range(1)] = 1_000_000
    body_seconds: Annotated[float, Range(above=0)] = 10.0
    file_bytes: Annotated[int, Range(1)] | None = 10_000_000
    file_seconds: Annotated[float, Range(above=0)] = 3600.0
    sound_seconds: Annotated[float, Range(above=0)] | None = 1500.0
    waiting: Annotated[int, Range(1)] = 10_000
    connections: Annotated[int, Range(1)] = 1000
    seconds: Annotated[float, Range(above=0)] = 60.0


@dataclass(frozen=True, kw_only=True)
class ServerConfig(Settings):
    """Where a server listens, and how it works."""

    host: str = "127.0.0.1"
    port: Annotated[int, Range(0, 65535)] = 5000
    api_keys: Path | None = None
    cache: Annotated[int, Range(0)] = 10_000
    drain_seconds: Annotated[float, Range(above=0)] = 30.0
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class ServeConfig(ServerConfig):
    """Which models are served, and how; conf/serve.yaml explains the keys."""

    checkpoint: str | Sequence[str] = field(kw_only=False)
    languages: Sequence[str] | None = None
    sentences: bool | None = None
    on_failure: OnFailure | None = None
    device: str = "cpu"
    precision: Precision | None = None
    batch_tokens: Annotated[int, Range(1)] | None = None
    engine: EngineName = "torch"
    engine_folder: Path | None = None
    trust: bool = False
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)

    def _objections(self) -> Iterator[str]:
        if not self.checkpoint:
            yield NO_CHECKPOINT

    def translator(self, checkpoint: Path) -> TranslatorConfig:
        """The translator of one of the models."""
        return TranslatorConfig.of(self, str(checkpoint))


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(Settings):
    """A sentence whose attention is shown; conf/attention.yaml explains the keys."""

    checkpoint: str = field(kw_only=False)
    text: str
    target: str | None = None
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    output: Path | None = None
    split: str = "validation"
    sentences: Annotated[int, Range(0)] = 200
    alignment_threshold: float | None = None
    heads_off: str | Sequence[str] | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] = 4096
    trust: bool = False
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)

    @property
    def translator(self) -> TranslatorConfig:
        """The translator of the model."""
        return TranslatorConfig.of(self, self.checkpoint)


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(Settings):
    """A model whose heads are ranked; conf/heads.yaml explains the keys."""

    checkpoint: str = field(kw_only=False)
    metric: str | None = "loss"
    split: str = "validation"
    sentences: Annotated[int, Range(1)] = 500
    prune: float | Sequence[float] = ()
    heads_off: str | Sequence[str] | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] = 1024
    trust: bool = False
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)

    def _objections(self) -> Iterator[str]:
        fractions = self.fractions
        in_range = all(0 < fraction <= 1 for fraction in fractions)
        if not in_range or len(set(fractions)) < len(fractions):
            yield f"prune={list(fractions)} must be fractions of the heads, each once, above 0 to 1"

    @property
    def fractions(self) -> Sequence[float]:
        """The values of ``prune``."""
        return (self.prune,) if isinstance(self.prune, float | int) else self.prune

    @property
    def translator(self) -> TranslatorConfig:
        """The translator of the model."""
        return TranslatorConfig.of(self, self.checkpoint)


_Count = Annotated[int, Range(1)]


@dataclass(frozen=True, kw_only=True)
class ShortlistConfig(Settings):
    """The text that is counted, and how many tokens are kept; conf/shortlist.yaml explains the
    keys."""

    checkpoint: str = field(kw_only=False)
    source: Path | None = None
    target: Path | None = None
    alignment: Path | None = None
    sentences: _Count = 200_000
    frequent: _Count = 100
    best: _Count = 100
    iterations: _Count = 4
    output: Path | None = None
    trust: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportConfig(Settings):
    """A page of one or several runs, or a model card of one; conf/report.yaml explains the keys."""

    runs: Sequence[str | Path] = field(kw_only=False)
    format: Literal["html", "card"] = "html"
    output: Path | None = None
    library: Literal["transformer", "transformers"] = "transformer"
    repo: str | None = None
    license: str = "unknown"
    trust: bool = False

    def _objections(self) -> Iterator[str]:
        if not self.runs:
            yield "report needs a run: report RUN (or runs=[RUN])"
        if self.format == "card" and len(self.runs) > 1:
            yield f"format=card describes one run, not {len(self.runs)}; give one"


PROMPT = "Translate from {source} to {target}; answer with the translation alone: {text}"
INCOMPLETE = "a chat API needs model_name=NAME, and {text} in prompt="

_ADDRESS = r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?(/[^?#\s]*)?"


@dataclass(frozen=True, kw_only=True)
class ServerKeys(Settings):
    """How a server is asked. Its errors never show an API key."""

    server: str
    source: str
    target: str
    model_name: str | None = None
    prompt: str = PROMPT
    parameters: Mapping[str, Any] | None = None
    candidates: Annotated[int, Range(1)] = 1
    api_key_env: str | None = "OPENAI_API_KEY"
    concurrency: Annotated[int, Range(1, 1000)] = 8
    tries: Annotated[int, Range(1)] = 6
    backoff: Annotated[float, Range(0)] = 1.0
    max_left_out: Annotated[float, Range(0, 1)] = 0.1
    timeout: Annotated[float, Range(above=0)] = 120.0

    def _objections(self) -> Iterator[str]:
        if not re.fullmatch(_ADDRESS, self.server):
            yield "server= must be as http://127.0.0.1:8000/v1, without password and query"
        if not re.fullmatch(r"[A-Za-z_]\w*", self.api_key_env or "none"):
            yield "api_key_env= must be the name of an environment variable, not a key"
        if self.is_chat and self.model_name is None:
            yield INCOMPLETE
        chat_keys = (self.model_name, self.prompt, self.parameters, self.candidates)
        if not self.is_chat and chat_keys != (None, PROMPT, None, 1):
            yield "model_name=, prompt=, parameters= and candidates= need a chat API"
        reserved = {"n", "messages", "model", "stream"}.intersection(self.parameters or ())
        if reserved:
            names = ", ".join(sorted(reserved))
            yield f"parameters= cannot set {names}; set model_name=, prompt= or candidates="

    @property
    def is_chat(self) -> bool:
        """Whether the server has a chat API, not LibreTranslate's ``/translate``."""
        return not self.server.rstrip("/").endswith("/translate")


@dataclass(frozen=True, kw_only=True)
class AskConfig(ServerKeys, ChoiceKeys):
    """A text that a server translates; conf/ask.yaml explains the keys."""

    input: Path
    output: Path
    answers: Path | None = None

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        choosers = [key for key in (self.reference, self.reverse) if key is not None]
        if len(choosers) != (1 if self.candidates > 1 else 0):
            yield "candidates=N goes with one of reference=FILE and reverse=RUN"
