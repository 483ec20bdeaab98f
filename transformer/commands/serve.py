"""``serve``: trained models as a service over HTTP."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from transformer.checkpoint.checkpoint import Checkpoint
from transformer.common.errors import InputError
from transformer.common.packages import require_package
from transformer.interchange.translators import load_translator, local_run
from transformer.quality.failures.flagging import Flagging
from transformer.quality.failures.flags import Detector
from transformer.serving.languages import Direction, Directions, trained_directions
from transformer.settings.commands import ServeConfig

_PACKAGES = ("lxml", "multipart", "prometheus_client", "py3langid", "starlette", "uvicorn")

SetThreads = Callable[[Iterable[Tensor]], object]


class Service(NamedTuple):
    """A server that answers requests."""

    url: str
    directions: tuple[tuple[str, str], ...]
    """(source, target) languages."""
    stop: Callable[[], None]
    """Lets `serve` return after the answers to accepted requests; any thread may call it."""


def serve(
    config: ServeConfig,
    *,
    started: Callable[[Service], object] = lambda service: None,
    set_threads: SetThreads = lambda weights: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, or until ``Service.stop`` is called.

    Signals stop it in the main thread alone; elsewhere only ``Service.stop`` does.

    Args:
        config: The settings; InputError if a model or the address cannot be used.
        started: Is told the service when it answers requests.
        set_threads: Sets torch's threads by the weights that are searched. It is called in the
            thread that translates.
    """
    for package in _PACKAGES:
        require_package(package, "serve", "serve")
    from transformer.serving.access import Access, read_keys
    from transformer.serving.http_server import build_app, listen, run_until_signal
    from transformer.serving.request_queue import RequestQueue

    keys = None if config.api_keys is None else read_keys(config.api_keys)
    thread = ThreadPoolExecutor(1)
    with ExitStack() as stack:
        listening = stack.enter_context(closing(listen(config)))
        stack.callback(thread.shutdown, wait=False)  # a batch that nobody waits for may take long
        directions = thread.submit(
            lambda: Directions(_load_directions(config, set_threads))
        ).result()
        models = [direction.translator.model for direction in directions.all]
        weights = [weight for model in models for weight in model.parameters()]
        thread.submit(set_threads, weights).result()  # each load has set them for its model
        tokens = min(direction.translator.batch_tokens for direction in directions.all)
        width = max(direction.translator.search.width for direction in directions.all)
        queue = RequestQueue(
            directions,
            config.limits,
            batch_tokens=max(1, tokens // width),
            cache=config.cache,
            thread=thread,
        )
        host, port = listening.getsockname()[:2]
        pairs = tuple((direction.source, direction.target) for direction in directions.all)
        run_until_signal(
            build_app(queue, Access(keys, config.limits.requests)),
            listening,
            config,
            lambda stop: started(Service(f"http://{host}:{port}", pairs, stop)),
        )


def _load_directions(config: ServeConfig, set_threads: SetThreads) -> Iterator[Direction]:
    names = [config.checkpoint] if isinstance(config.checkpoint, str) else config.checkpoint
    languages: Sequence[str | None] = config.languages or [None] * len(names)
    if len(languages) != len(names):
        raise InputError(
            f"languages= names {len(languages)} directions, and checkpoint= {len(names)} "
            "models; give one for each model, such as languages=[en-de,de-en]"
        )

    def loaded(checkpoints: Iterable[Checkpoint]) -> None:
        set_threads(
            weight for checkpoint in checkpoints for weight in checkpoint.model.parameters()
        )

    for name, pair in zip(names, languages, strict=True):
        checkpoint = local_run(name)
        translator, trained = load_translator(config.translator(checkpoint), loaded=loaded)
        if translator.tokenizer.tags.sentences:
            raise InputError(f"{checkpoint} translates documents; serve takes models of sentences")
        if config.on_failure is not None:
            translator.tokenizer.require_text("on_failure=")
        flagging = None
        if trained.data.source_kind == "text":
            detector = Detector.load(checkpoint, trained.data)
            flagging = Flagging(translator, detector, config.on_failure)
        elif trained.data.source_kind != "speech":
            raise InputError(
                f"{checkpoint} reads files ({trained.data.source_kind}), for which there is no "
                "interface; serve takes models of text and of sound"
            )
        for direction in trained_directions(translator, trained, pair, config.sentences):
            yield replace(direction, flagging=flagging)
