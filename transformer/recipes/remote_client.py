"""Asks a server over HTTP, tries again what may pass, and keeps each answer on the disk."""

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from threading import Event, Lock
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from transformer.common.errors import InputError
from transformer.recipes.remote_teacher import Answer, RemoteTeacher

LONGEST_BACKOFF, LONGEST_RETRY_AFTER, PROGRESS = 60.0, 3600.0, 2.0
"""Seconds: between two tries by our own choice, and by that of the server; between two reports."""

ANSWER_START, _WRONG_REQUEST = b'{"hash": "', ("status 400", "status 413", "status 422")
"""Of each line of a file of answers; faults that the same request has again, others may not."""


class Client:
    """Asks a server, from several threads; ``stop`` ends the waiting before another try.

    The key comes from the environment, and goes only into requests. Raises InputError for a key
    that cannot be sent, or would be sent unencrypted to another machine.
    """

    def __init__(self, teacher: RemoteTeacher) -> None:
        self.teacher, self.stop = teacher, Event()
        self._retry_after, self._outage, self._reached, self.answered = 0.0, 0, False, ""
        name, server = teacher.api_key_env or "", teacher.server
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
        answer, tokens, pause = Answer([], "stopped"), (0, 0), 0.0
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
        self.answered = text if answer.texts else self.answered
        # All of them may be too long: then the server still answers a line that it has answered.
        again = rejected and self.answered not in ("", text)
        limit = max(8, self.teacher.concurrency)
        if self._outage >= limit and not (again and not self.ask(self.answered).transient):
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
        message, fault = "", f"status {error.code}"
        with error, suppress(OSError, HTTPException):
            message = " ".join(self._without_key(error.read(100_000)).split())[:300]
        transient = error.code in (408, 409, 425, 429) or error.code >= 500
        if not transient and fault not in _WRONG_REQUEST:
            name = self.teacher.api_key_env
            advice = "check the address and the model" + f", and the key in {name}" * bool(name)
            raise InputError(f"{self.teacher.server} answers {error.code} ({message}); {advice}")
        after = error.headers.get("Retry-After", "0")
        with suppress(ValueError):  # seconds, or a date (RFC 9110, section 10.2.3)
            date = "," in after and parsedate_to_datetime(after).timestamp() - time.time()
            seconds = min(LONGEST_RETRY_AFTER, date or float(after))
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

    ``report`` is told from time to time how many different texts are done, and the ``counts``.
    Each answer is on the disk before the next request. After an error, requests that are on their
    way are still answered. A later call asks again where the fault was transient.
    """
    known = _known_answers(file)
    keys = {text: client.teacher.request_hash(text) for text in texts if text.strip()}
    client.answered = next((text for text in keys if known.get(keys[text], Answer([])).texts), "")
    numbers, lock = {text: number for number, text in enumerate(texts, 1)}, Lock()
    missing = [text for text, key in keys.items() if key not in known]
    done, remaining = len(keys) - len(missing), iter(missing)

    def work() -> None:
        nonlocal done
        while not client.stop.is_set() and (text := next(remaining, None)) is not None:
            answer = client.ask(text)
            values = {"hash": keys[text], "line": numbers[text], **answer._asdict()}
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
        for one in map(json.loads, file):
            known[one["hash"]] = Answer(one["texts"], one["fault"], (*one["tokens"],))
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{file.name}: a line is no answer ({error}); remove it") from error
    return known


def counts(answers: Collection[Answer]) -> str:
    """How many are answered, and have each fault; the tokens of requests and answers."""
    found = Counter((answer.fault or "answered").partition(":")[0] for answer in answers)
    for side, name in enumerate(("tokens in", "tokens out")):
        found[name] = sum(answer.tokens[side] for answer in answers)
    return ", ".join(f"{name} {count:,}" for name, count in found.items())
