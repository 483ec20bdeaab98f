"""Settings of a server; conf/serve.yaml explains them."""

from dataclasses import dataclass, field
from typing import Annotated

from transformer.common.schema import Range
from transformer.settings.decoding import OnFailure


@dataclass(frozen=True)
class Limits:
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


@dataclass(frozen=True)
class ServerConfig:
    """Where a server listens, and how it works."""

    host: str = "127.0.0.1"
    port: Annotated[int, Range(0, 65535)] = 5000
    api_keys: str | None = None
    cache: Annotated[int, Range(0)] = 10_000
    drain_seconds: Annotated[float, Range(above=0)] = 30.0
    limits: Limits = field(default_factory=Limits)
    on_failure: OnFailure | None = None
