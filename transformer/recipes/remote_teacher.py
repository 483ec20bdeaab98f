"""A server with chat completions or ``/translate``: requests, candidates, and their faults."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from transformer.common.language_names import language_name
from transformer.settings.commands import INCOMPLETE, ServerKeys

_REFUSAL = re.compile(
    r"(?i)\bi(['’]m| am)? (can['’]?t|cannot|unable to|not able to|won['’]t) (assist|help|comply|"
    r"fulfill|translate)\b.{0,20}\b(that|this|request|content|text)\b|\bas an ai (language )?model"
)


class Answer(NamedTuple):
    """Candidates, or a fault, ``transient`` if the model did not cause it; tokens in and out."""

    texts: Sequence[str]
    fault: str | None = None
    tokens: tuple[int, int] = (0, 0)
    transient: bool = False


@dataclass(frozen=True, kw_only=True)
class RemoteTeacher(ServerKeys):
    """Requests to a server, and its answers; ``prompt`` is the text, no file."""

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        if self.is_chat and "{text}" not in self.prompt:
            yield INCOMPLETE

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
