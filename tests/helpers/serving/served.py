"""A server of a tiny model in a thread of this process."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import uvicorn

from tests.helpers.decoding.translators import tiny_translator
from transformer.decoding.translator import Translator
from transformer.quality.failures.flagging import Flagging
from transformer.serving.access import Access, Client
from transformer.serving.batch_translation import translate_batch
from transformer.serving.formats.placeholders import TranslateBatch
from transformer.serving.http_server import build_app, listen
from transformer.serving.languages import Direction, Directions
from transformer.serving.request_queue import RequestQueue
from transformer.settings.commands import Limits, ServerConfig


def limits(**changes: Any) -> Limits:
    """Small files and any text, in short times; ``changes`` replace fields."""
    values: dict[str, Any] = {"characters": None, "file_bytes": 1_000_000, "file_seconds": 60.0}
    return Limits(**(values | changes))


@contextmanager
def serving(
    *,
    translator: Translator | None = None,
    pairs: Sequence[tuple[str, str]] = (("en", "de"),),
    clients: list[Client] | None = None,
    cache: int = 100,
    sentences: bool = True,
    flagging: Flagging | None = None,
    translate: TranslateBatch = translate_batch,
    **changes: Any,
) -> Iterator[str]:
    """The address of a server, which ends with the context."""
    model = translator or tiny_translator(nbest=1)
    directions = Directions(
        Direction(*pair, model, sentences=sentences, flagging=flagging) for pair in pairs
    )
    asked = limits(**changes)
    pool = ThreadPoolExecutor(1)
    queue = RequestQueue(
        directions, asked, batch_tokens=100, cache=cache, thread=pool, translate=translate
    )
    app = build_app(queue, Access(clients, asked.requests))
    listening = listen(ServerConfig(port=0, cache=cache, drain_seconds=5.0, limits=asked))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def ask(
    url: str, values: Mapping[str, Any] | None = None, *, form: bool = False, **headers: str
) -> tuple[int, Any]:
    """The status and the JSON of an answer: to a GET, or to a POST of JSON or of a form."""
    data, kind = None, {}
    if values is not None and form:
        data = urlencode(values, doseq=True).encode()
    elif values is not None:
        data, kind = json.dumps(values).encode(), {"Content-Type": "application/json"}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, kind | given)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
