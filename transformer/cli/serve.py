"""``serve``: trained models as a service over HTTP."""

import logging
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from omegaconf import DictConfig

from transformer.cli import translator as described
from transformer.cli.config.compose import checkpoint_paths, resolve_fields, resolve_value
from transformer.cli.threads import set_search_threads
from transformer.common.errors import InputError, require_package
from transformer.common.files import given_path
from transformer.common.schema import typed
from transformer.quality.failures.flagging import Flagging
from transformer.quality.failures.flags import Detector
from transformer.serving.languages import Direction, Directions, trained_directions
from transformer.settings.decoding import OnFailure

_PACKAGES = ("lxml", "multipart", "prometheus_client", "py3langid", "starlette", "uvicorn")


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Serve until a signal."""
    for package in _PACKAGES:
        require_package(package, "serve", "serve")
    from transformer.serving.access import Access, read_keys
    from transformer.serving.http_server import build_app, listen, run_until_signal
    from transformer.serving.request_queue import RequestQueue
    from transformer.settings.serve import ServerConfig
    from transformer.training.optimization.cpu_allocator import return_freed_memory

    return_freed_memory()
    settings = typed(ServerConfig, resolve_fields(config, ServerConfig), "serve")
    keys = None if settings.api_keys is None else read_keys(given_path(settings.api_keys))
    listening = listen(settings)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    thread = ThreadPoolExecutor(1)
    directions = thread.submit(lambda: Directions(_directions(config, arguments))).result()
    models = [one.translator.model for one in directions.all]
    weights = [weight for model in models for weight in model.parameters()]
    thread.submit(set_search_threads, weights).result()  # loading has set them for the last
    tokens = min(one.translator.batch_tokens for one in directions.all)
    width = max(one.translator.search.width for one in directions.all)
    queue = RequestQueue(
        directions,
        settings.limits,
        batch_tokens=max(1, tokens // width),
        cache=settings.cache,
        thread=thread,
    )
    host, port = listening.getsockname()[:2]
    pairs = ", ".join(f"{one.source} to {one.target}" for one in directions.all)

    def started() -> None:
        print(f"translating from {pairs} at http://{host}:{port}", file=sys.stderr, flush=True)

    run_until_signal(
        build_app(queue, Access(keys, settings.limits.requests)), listening, settings, started
    )


def _directions(config: DictConfig, arguments: Sequence[str]) -> Iterator[Direction]:
    checkpoints = checkpoint_paths(config)
    named_pairs = resolve_value(config, "languages", Sequence[str] | None)
    languages = named_pairs or [None] * len(checkpoints)
    if len(languages) != len(checkpoints):
        raise InputError(
            f"languages= names {len(languages)} directions, and checkpoint= {len(checkpoints)} "
            "models; give one for each model, such as languages=[en-de,de-en]"
        )
    sentences = resolve_value(config, "sentences", bool | None)
    on_failure = resolve_value(config, "on_failure", OnFailure | None)
    for checkpoint, named in zip(checkpoints, languages, strict=True):
        one = config.copy()
        one.checkpoint = str(checkpoint)
        translator, trained = described.load(one, arguments)
        if translator.tokenizer.tags.sentences:
            raise InputError(f"{checkpoint} translates documents; serve takes models of sentences")
        flagging = Flagging(translator, Detector.load(checkpoint, trained.data), on_failure)
        for direction in trained_directions(translator, trained, named, sentences):
            yield replace(direction, flagging=flagging)
