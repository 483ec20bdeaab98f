"""The keys of ``ask``."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from transformer.common.schema import Range, Settings
from transformer.settings.select import ChoiceKeys

PROMPT = "Translate from {source} to {target}; answer with the translation alone: {text}"
INCOMPLETE = "a chat API needs model_name=NAME, and {text} in prompt="

_ADDRESS = r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?(/[^?#\s]*)?"


@dataclass(frozen=True, kw_only=True)
class ServerKeys(Settings):
    """How a server is asked. No InputError of it shows a key."""

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
        given = (self.model_name, self.prompt, self.parameters, self.candidates)
        if not self.is_chat and given != (None, PROMPT, None, 1):
            yield "model_name=, prompt=, parameters= and candidates= need a chat API"
        own = ", ".join(sorted({*(self.parameters or ())} & {"n", "messages", "model", "stream"}))
        if own:
            yield f"parameters= cannot set {own}; set model_name=, prompt= or candidates="

    @property
    def is_chat(self) -> bool:
        """Whether it has a chat API; else it has ``/translate``."""
        return not self.server.rstrip("/").endswith("/translate")


@dataclass(frozen=True, kw_only=True)
class AskConfig(ServerKeys, ChoiceKeys):
    """A text that a server translates; conf/ask.yaml explains the keys."""

    input: Path
    output: Path
    answers: Path | None = None

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        if (self.reference, self.reverse).count(None) != 2 - (self.candidates > 1):
            yield "candidates=N goes with one of reference=FILE and reverse=RUN"
