"""``serve``: trained models as a service over HTTP."""

import logging
import sys
from collections.abc import Sequence

from transformer.cli.threads import set_search_threads
from transformer.commands.serve import Service, serve
from transformer.settings.commands import ServeConfig
from transformer.training.cpu_allocator import return_freed_memory


def run(config: ServeConfig, _: Sequence[str]) -> None:
    """Serve until a signal."""
    return_freed_memory()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    serve(config, started=_show, set_threads=set_search_threads)


def _show(service: Service) -> None:
    pairs = ", ".join(f"{source} to {target}" for source, target in service.directions)
    print(f"translating from {pairs} at {service.url}", file=sys.stderr, flush=True)
