"""``translate``: a Unix filter, one line in, one line out, flushed as it goes; or a file to a file.

A file may be shared out among processes (``torchrun``), and a call that was killed goes on where it
was.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from omegaconf import DictConfig, OmegaConf

from transformer.cli.compose import compose_config
from transformer.cli.exit import exit_code_of
from transformer.cli.shares import Parts, Share
from transformer.cli.streams import open_input, open_output
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.decoding.constraints import Request
    from transformer.decoding.translator import Translator


def main(arguments: Sequence[str]) -> int:
    """Translate; returns the exit code."""
    return exit_code_of(lambda: _translate(compose_config("translate", arguments), arguments))


def _translate(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.engine import translator_by_engine

    _check(config)
    share = Share.of_process()
    if share.world > 1 and None in (config.input, config.output):
        raise InputError("several processes need a file to share out: set input= and output= too")
    translator = translator_by_engine(config, arguments)
    with ExitStack() as stack:
        lines, ready = open_input(config.input, stack)
        if config.input is None or config.output is None:
            output = open_output(config.output, stack)
            _stream(config, translator, lines, output, lambda index: index + 1, ready)
            return
        parts = Parts(Path(config.output), share, _job(config, translator))
        if not parts.is_done:
            output, done = parts.open(stack)
            if done:
                print(f"going on after {done} lines in {output.name}", file=sys.stderr)
            own = share.lines(lines, done)
            _stream(config, translator, own, output, lambda index: share.number(done + index))
            parts.finish()
        if not share.rank:
            parts.join()


def _stream(
    config: DictConfig,
    translator: "Translator",
    lines: Iterator[str],
    output: BinaryIO,
    number: Callable[[int], int],
    ready: Callable[[], bool] | None = None,
) -> None:
    """Translate lines; ``number`` tells where the n-th of them, from 0, stands in its file."""
    name = config.input or "stdin"
    requests: Any = lines
    if config.input_format == "json":
        requests = _requests(lines, lambda index: f"{name}:{number(index)}")
    found = translator.translate_stream(
        requests, ready=ready, attention=config.attention, alignment=config.alignment
    )
    for index, translation in enumerate(found):
        if config.format == "json":
            line = json.dumps(translation.to_json(), ensure_ascii=False)
        else:
            line = translation.to_line()
            if translation.unmet:
                unmet = "; ".join(translation.unmet)
                print(f"warning: {name}:{number(index)}: unmet: {unmet}", file=sys.stderr)
        output.write(line.encode() + b"\n")
        output.flush()


def _requests(lines: Iterator[str], where: Callable[[int], str]) -> "Iterator[Request]":
    from transformer.decoding.constraints import Request

    for index, line in enumerate(lines):
        yield Request.parse(line, where(index))


def _check(config: DictConfig) -> None:
    from transformer.cli.load import refuse_idle
    from transformer.training.typed import typed_value

    wanted = [typed_value(config[key], bool, key) for key in ("attention", "alignment")]
    for key in ("format", "input_format"):
        if config[key] not in ("text", "json"):
            raise InputError(f"{key}={config[key]} is unknown; choose text or json")
    if config.attention and config.format == "text":
        raise InputError("attention=true needs format=json")
    if not any(wanted):
        refuse_idle(config, ("alignment_head",), "alignment=true or attention=true")
    if not config.alignment:
        refuse_idle(config, ("alignment_threshold",), "alignment=true")


def _job(config: DictConfig, translator: "Translator") -> str:
    """A hash of the model, the search, the text and all settings: what the output depends on."""
    from transformer.export.fingerprint import fingerprint_of

    text = Path(config.input).stat()
    models = [fingerprint_of(model, translator.tokenizer) for model in translator.members]
    whole = [
        *(OmegaConf.to_container(config), models, str(translator.search)),
        *(str(Path(config.input).resolve()), text.st_size, text.st_mtime_ns),
    ]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:12]
