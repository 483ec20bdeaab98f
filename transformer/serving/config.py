"""The keys of ``serve`` that are not of the model; conf/serve.yaml explains them."""

from dataclasses import dataclass
from typing import Annotated

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range


@dataclass(frozen=True)
class Limits:
    """How much the clients of a server may ask; None sets no limit."""

    characters: Annotated[int, Range(1)] | None
    texts: Annotated[int, Range(1)] | None
    alternatives: Annotated[int, Range(0)]
    requests: Annotated[int, Range(1)] | None
    body_bytes: Annotated[int, Range(1)]
    body_seconds: Annotated[float, Range(above=0)]
    file_bytes: Annotated[int, Range(1)] | None
    file_seconds: Annotated[float, Range(above=0)]
    waiting: Annotated[int, Range(1)]
    connections: Annotated[int, Range(1)]
    seconds: Annotated[float, Range(above=0)]

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, "limits"))


@dataclass(frozen=True)
class ServerConfig:
    """Where a server listens, and how it works."""

    host: str
    port: Annotated[int, Range(0, 65535)]
    api_keys: str | None
    cache: Annotated[int, Range(0)]
    drain_seconds: Annotated[float, Range(above=0)]
    limits: Limits

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, "serve"))
