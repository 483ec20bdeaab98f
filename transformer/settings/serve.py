"""The keys of ``serve``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from transformer.common.schema import Range, Settings
from transformer.settings.decoding import OnFailure, SearchConfig
from transformer.settings.model import Precision
from transformer.settings.translator import NO_CHECKPOINT, EngineName, TranslatorConfig


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
