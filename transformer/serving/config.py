"""The keys of the verb ``serve`` that are not of the model; defaults are in conf/serve.yaml."""

from dataclasses import dataclass
from typing import Annotated

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range


@dataclass(frozen=True)
class Limits:
    """How much the clients of a server may ask; null sets no limit.

    Attributes:
        characters: Of one text.
        texts: Of one request.
        alternatives: Of one request.
        requests: A minute, by one key, or from one address without a key; each text counts.
        body_bytes: Of one request.
        body_seconds: Until the whole body of a request has been read.
        file_bytes: Of a file; null translates no files.
        file_seconds: After which a file is deleted.
        waiting: Sentences that wait, and sentences of one request; more are refused.
        connections: Of all clients; more get status 503.
        seconds: Until a request must have its answer.
    """

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
    """Where a server listens, and how it works.

    Attributes:
        host: Address to listen on.
        port: 0 takes a free one.
        api_keys: File of the keys (``access.py``); null lets everyone in.
        cache: Sentences whose translation is remembered.
        drain_seconds: After SIGTERM, the longest time for the answers to accepted requests.
    """

    host: str
    port: Annotated[int, Range(0, 65535)]
    api_keys: str | None
    cache: Annotated[int, Range(0)]
    drain_seconds: Annotated[float, Range(above=0)]
    limits: Limits

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, "serve"))
