"""A server that translates, as the teacher of a distillation: requests, answers, and retries.

The server has chat completions, or ``/translate`` of LibreTranslate. Answers are kept on the disk.
"""

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from hashlib import sha256
from http.client import HTTPException
from threading import Event, Lock
from typing import Any, BinaryIO, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from transformer.common.errors import InputError
from transformer.common.language_names import language_name
from transformer.settings.commands import INCOMPLETE, ServerKeys

LONGEST_BACKOFF = 60.0
"""Seconds between two tries, at most, by our own choice."""

LONGEST_RETRY_AFTER = 3600.0
"""Seconds between two tries, at most, by the choice of the server."""

PROGRESS = 2.0
"""Seconds between two reports."""

ANSWER_START = b'{"hash": "'
"""Start of each line of a file of answers."""

_WRONG_REQUEST = ("status 400", "status 413", "status 422")
"""Faults that the same request has again; the others may not."""

_REFUSAL = re.compile(
    r"(?i)\bi(['’]m| am)? (can['’]?t|cannot|unable to|not able to|won['’]t) (assist|help|comply|"
    r"fulfill|translate)\b.{0,20}\b(that|this|request|content|text)\b|\bas an ai (language )?model"
)


class Answer(NamedTuple):
    """The answer to a request: candidates, or a fault."""

    texts: Sequence[str]
    fault: str | None = None
    tokens: tuple[int, int] = (0, 0)
    """Of the request and of the answer, as the server counts them."""
    transient: bool = False
    """Whether the model did not cause the fault, so that the request is worth another try."""


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
        url = self.server.rstrip("/")
        path = "/chat/completions"
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
        request: dict[str, Any] = {
            "model": self.model_name,
            "messages": [{"role": "user", "content": filled}],
        }
        if self.candidates > 1:
            request["n"] = self.candidates
        return request | dict(self.parameters or {})

    def request_hash(self, text: str) -> str:
        """A hash of all that the answer depends on."""
        # In JSON all keys are text, which has an order.
        values = json.loads(json.dumps([self.url, self.request(text)]))
        return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]

    def read(self, values: Any) -> Answer:
        """The candidates of an answer that have no fault, or the fault of the first one."""
        tokens = _tokens(values)
        try:
            if self.is_chat:
                candidates = [_candidate(**choice) for choice in values["choices"]]
            else:
                candidates = [_candidate({"content": values["translatedText"]})]
        except (AttributeError, LookupError, TypeError, ValueError):
            return Answer([], "unknown format", tokens)
        texts = [text for text, fault in candidates if fault is None]
        if texts:
            return Answer(texts, None, tokens)
        return Answer([], candidates[0][1] if candidates else "empty", tokens)


class Client:
    """Asks a server, from several threads; ``stop`` ends the waiting before another try.

    The key comes from the environment, and goes only into requests. Raises InputError for a key
    that cannot be sent, or would be sent unencrypted to another machine.
    """

    def __init__(self, teacher: RemoteTeacher) -> None:
        self.teacher = teacher
        self.stop = Event()
        self.answered = ""
        """A text that the server has answered."""
        self._reached = False
        self._retry_after = 0.0
        """Time at which the server allows the next request."""
        self._outage = 0
        """Number of answers in a row with a transient fault."""
        name = teacher.api_key_env or ""
        server = teacher.server
        self._key = os.environ.get(name, "").strip()
        if not re.fullmatch("[!-~]*", self._key):
            raise InputError(f"the key in {name} has characters that no key has; set it anew")
        private = r"https:|http://(localhost|127\.[\d.]+|\[::1\])(:|/|$)"
        if self._key and not re.match(private, server):
            raise InputError(f"{server}: give https:// for the key in {name}, or api_key_env=null")
        # Without https:// a proxy would see the key.
        proxies: dict[str, str] | None = {} if self._key and server.startswith("http:") else None
        self._open = build_opener(ProxyHandler(proxies)).open
        # JSON may escape each character, and JSON in a text of JSON does so again.
        escaped = (rf"(?:\\{{0,7}}{re.escape(c)}|\\{{1,7}}u(?i:{ord(c):04x}))" for c in self._key)
        self._any_key = re.compile("".join(escaped))

    def ask(self, text: str) -> Answer:
        """The first answer without a fault, or the last one; raises InputError without a server."""
        answer = Answer([], "stopped")
        tokens = (0, 0)
        pause = 0.0
        for number in range(self.teacher.tries):
            self.stop.wait(max(pause, self._retry_after - time.monotonic(), 0.0))
            if self.stop.is_set():
                return answer._replace(transient=True)
            answer = self._post(self.teacher.request(text))
            tokens = (tokens[0] + answer.tokens[0], tokens[1] + answer.tokens[1])
            rejected = (answer.fault or "").startswith(_WRONG_REQUEST)
            if answer.texts or rejected:
                break
            longest = min(self.teacher.backoff * 2**number, LONGEST_BACKOFF)
            pause = random.uniform(longest / 2, longest) if answer.transient else 0.0
        self._outage = self._outage + 1 if answer.transient else 0
        if answer.texts:
            self.answered = text
        limit = max(8, self.teacher.concurrency)
        if self._outage >= limit:
            # All of these lines may be too long: then the server still answers an earlier line.
            can_check = rejected and self.answered not in ("", text)
            if not can_check or self.ask(self.answered).transient:
                reason = f"{limit} lines in a row have no answer ({answer.fault})"
                raise InputError(f"{self.teacher.server}: {reason}; the same command resumes")
        return answer._replace(tokens=tokens)

    def _post(self, values: dict[str, Any]) -> Answer:
        if self._key and not self.teacher.is_chat:
            values["api_key"] = self._key
        headers = {"Content-Type": "application/json", "User-Agent": "transformer"}
        request = Request(self.teacher.url, json.dumps(values).encode(), headers)
        if self._key and self.teacher.is_chat:
            # A redirection takes no such header to another address.
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        try:
            with self._open(request, timeout=self.teacher.timeout) as response:
                body = self._without_key(response.read())
            self._reached = True
            return self.teacher.read(json.loads(body))
        except HTTPError as error:
            return self._rejected(error)
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            reason = self._without_key(str(getattr(error, "reason", error)).encode())
            if isinstance(error, URLError) and not self._reached:
                reason += "; start the server, or correct the address"
                raise InputError(f"{self.teacher.server}: {reason}") from None
            fault = "cut JSON" if isinstance(error, ValueError) else f"no answer: {reason}"
            return Answer([], fault, transient=True)

    def _rejected(self, error: HTTPError) -> Answer:
        """The fault of a status; raises InputError for one that all other requests will have."""
        message = ""
        fault = f"status {error.code}"
        with error, suppress(OSError, HTTPException):
            message = " ".join(self._without_key(error.read(100_000)).split())[:300]
        transient = error.code in (408, 409, 425, 429) or error.code >= 500
        if not transient and fault not in _WRONG_REQUEST:
            advice = "check the address and the model"
            if self.teacher.api_key_env:
                advice += f", and the key in {self.teacher.api_key_env}"
            raise InputError(f"{self.teacher.server} answers {error.code} ({message}); {advice}")
        after = error.headers.get("Retry-After", "0")
        with suppress(ValueError):  # seconds, or a date (RFC 9110, section 10.2.3)
            if "," in after:
                seconds = parsedate_to_datetime(after).timestamp() - time.time()
            else:
                seconds = float(after)
            seconds = min(LONGEST_RETRY_AFTER, seconds)
            self._retry_after = max(self._retry_after, time.monotonic() + seconds)
        return Answer([], f"{fault}: {message}" if message else fault, transient=True)

    def _without_key(self, body: bytes) -> str:
        """Text of the server, which may repeat the key; a short one is a word, and no secret."""
        text = body.decode(errors="replace")
        return self._any_key.sub("***", text) if len(self._key) > 8 else text


def ask_all(
    client: Client, texts: Sequence[str], file: BinaryIO, report: Callable[[int, str], object]
) -> dict[str, Answer]:
    """The answer for each text, which is asked for if an open file of JSON lines has none.

    ``report`` is called every few seconds with the number of different texts that are done, and
    their ``counts``. Each answer is on the disk before the next request. After an error, requests
    that were sent are still answered. A later call asks again where the fault was transient.
    """
    known = _known_answers(file)
    keys = {text: client.teacher.request_hash(text) for text in texts if text.strip()}
    client.answered = next((text for text in keys if known.get(keys[text], Answer([])).texts), "")
    line_of = {text: number for number, text in enumerate(texts, 1)}
    lock = Lock()
    missing = [text for text, key in keys.items() if key not in known]
    remaining = iter(missing)
    done = len(keys) - len(missing)

    def work() -> None:
        nonlocal done
        for text in remaining:  # all threads share the iterator
            if client.stop.is_set():
                return
            answer = client.ask(text)
            values = {"hash": keys[text], "line": line_of[text], **answer._asdict()}
            with lock:
                known[keys[text]] = answer
                done += 1
                if not values.pop("transient"):
                    file.write(json.dumps(values, ensure_ascii=False).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())

    with ThreadPoolExecutor(client.teacher.concurrency) as pool:
        running = {pool.submit(work) for _ in range(client.teacher.concurrency)}
        try:
            while running:
                ended, running = wait(running, PROGRESS, "FIRST_COMPLETED")
                for future in ended:
                    future.result()
                with lock:
                    report(done, counts(known.values()))
        finally:
            client.stop.set()
    return {text: known[key] for text, key in keys.items()}


def _known_answers(file: BinaryIO) -> dict[str, Answer]:
    """The answers in a file, by the hash of their request."""
    file.seek(0)
    known: dict[str, Answer] = {}
    try:
        for line in file:
            values = json.loads(line)
            answer = Answer(values["texts"], values["fault"], tuple(values["tokens"]))
            known[values["hash"]] = answer
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{file.name}: a line is no answer ({error}); remove it") from error
    return known


def counts(answers: Collection[Answer]) -> str:
    """How many are answered, and have each fault; the tokens of requests and answers."""
    numbers = Counter((answer.fault or "answered").partition(":")[0] for answer in answers)
    numbers["tokens in"] = sum(answer.tokens[0] for answer in answers)
    numbers["tokens out"] = sum(answer.tokens[1] for answer in answers)
    return ", ".join(f"{name} {number:,}" for name, number in numbers.items())


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
    fault = None
    if refused or _REFUSAL.search(text):
        fault = "refusal"
    elif finish_reason == "length":
        fault = "cut off"
    elif re.search("[\n\r\ud800-\udfff]", text):
        fault = "not one line"
    elif not text:
        fault = "empty"
    return text, fault
