"""A server with chat completions or ``/translate``: requests, candidates, and their faults."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, NamedTuple

from transformer.common.errors import raise_objections
from transformer.common.language_names import language_name
from transformer.common.schema import Range, out_of_range

PROMPT = "Translate from {source} to {target}; answer with the translation alone: {text}"
_REFUSAL = re.compile(
    r"(?i)\bi(['’]m| am)? (can['’]?t|cannot|unable to|not able to|won['’]t) (assist|help|comply|"
    r"fulfill|translate)\b.{0,20}\b(that|this|request|content|text)\b|\bas an ai (language )?model"
)
_ADDRESS = r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?(/[^?#\s]*)?"


class Answer(NamedTuple):
    """Candidates, or a fault, ``transient`` if the model did not cause it; tokens in and out."""

    texts: Sequence[str]
    fault: str | None = None
    tokens: tuple[int, int] = (0, 0)
    transient: bool = False


@dataclass(frozen=True)
class RemoteTeacher:
    """How a server is asked: keys of ``conf/ask.yaml``. No InputError of it shows a key."""

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
    timeout: Annotated[float, Range(above=0)] = 120.0
    backoff: Annotated[float, Range(0)] = 1.0
    max_left_out: Annotated[float, Range(0, 1)] = 0.1

    def __post_init__(self) -> None:
        given = (self.model_name, self.prompt, self.parameters, self.candidates)
        not_chat = not self.is_chat and given != (None, PROMPT, None, 1)
        incomplete = self.is_chat and (self.model_name is None or "{text}" not in self.prompt)
        valid = re.fullmatch(_ADDRESS, self.server)
        name = re.fullmatch(r"[A-Za-z_]\w*", self.api_key_env or "none")
        own = ", ".join(sorted({*(self.parameters or ())} & {"n", "messages", "model", "stream"}))
        objections = [
            *out_of_range(self, ""),
            "server= must be as http://127.0.0.1:8000/v1, without password and query" * (not valid),
            "api_key_env= must be the name of an environment variable, not a key" * (not name),
            "a chat API needs model_name=NAME, and {text} in prompt=" * incomplete,
            "model_name=, prompt=, parameters= and candidates= need a chat API" * not_chat,
            f"parameters= cannot set {own}; set model_name=, prompt= or candidates=" * bool(own),
        ]
        raise_objections(filter(None, objections))

    @property
    def is_chat(self) -> bool:
        """Whether it has a chat API; else it has ``/translate``."""
        return not self.server.rstrip("/").endswith("/translate")

    @property
    def url(self) -> str:
        """The address of requests; that of a chat API may be given without its last parts."""
        url, path = self.server.rstrip("/"), "/chat/completions"
        if self.is_chat and not url.endswith(path):
            url += path if "/" in url.partition("://")[2] else f"/v1{path}"
        return url

    def request(self, text: str) -> dict[str, Any]:
        """The JSON of a request, without the key."""
        fields = {"source": self.source, "target": self.target}
        if not self.is_chat:
            return {"q": text, "format": "text", **fields}
        fields = {name: language_name(code) for name, code in fields.items()} | {"text": text}
        filled = re.sub(r"\{(source|target|text)\}", lambda name: fields[name[1]], self.prompt)
        several = {"n": self.candidates} if self.candidates > 1 else {}
        messages = [{"role": "user", "content": filled}]
        return {
            "model": self.model_name,
            "messages": messages,
            **several,
            **(self.parameters or {}),
        }

    def request_hash(self, text: str) -> str:
        """A hash of all that the answer depends on."""
        # In JSON all keys are text, which has an order.
        values = json.loads(json.dumps([self.url, self.request(text)]))
        return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]

    def read(self, values: Any) -> Answer:
        """The candidates of an answer that have no fault, or the fault of the first one."""
        tokens = _tokens(values)
        try:
            one = [] if self.is_chat else [{"message": {"content": values["translatedText"]}}]
            found = [_candidate(**choice) for choice in one or values["choices"]]
        except (AttributeError, LookupError, TypeError, ValueError):
            return Answer([], "unknown format", tokens)
        good = [text for text, fault in found if fault is None]
        return Answer(good, None if good else [*found, ("", "empty")][0][1], tokens)


def _tokens(values: Any) -> tuple[int, int]:
    """The counts of a server; 0 where it gives none."""
    try:
        usage = values["usage"]
        return int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return 0, 0


def _candidate(message: Any, finish_reason: Any = None, **_: Any) -> tuple[str, str | None]:
    """The text of a choice, and its fault."""
    text = (message.get("content") or "").strip()
    refused = message.get("refusal") or finish_reason == "content_filter"
    faults = {
        "refusal": refused or _REFUSAL.search(text),
        "cut off": finish_reason == "length",
        "not one line": re.search("[\n\r\ud800-\udfff]", text),
        "empty": not text,
    }
    return text, next((fault for fault, found in faults.items() if found), None)
