"""``translate``: a Unix filter, one line in, one line out, flushed as it goes; or a file to a file.

A file may be shared out among processes (``torchrun``), and a call that was killed goes on where it
was.
"""

import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from omegaconf import DictConfig, OmegaConf

from transformer.cli.compose import compose_config
from transformer.cli.exit import exit_code_of
from transformer.cli.shares import Parts, Share
from transformer.cli.streams import files_of, open_input, open_output
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
    # A name such as 2014 is a number to the config.
    source, target = (None if one is None else str(one) for one in (config.input, config.output))
    files = files_of(source, target)
    if files is not None:
        _refuse_bad_lines(files[0], config.input_format)
        _translate_file(config, translator_by_engine(config, arguments), share, *files)
    elif share.world > 1:
        raise InputError("several processes need a file to share out: set input= and output= too")
    else:
        translator = translator_by_engine(config, arguments)
        with ExitStack() as stack:
            lines, ready = open_input(source, stack)
            output = open_output(target, stack)
            _stream(config, translator, lines, output, lambda index: index + 1, ready)


def _translate_file(
    config: DictConfig, translator: "Translator", share: Share, source: Path, output: Path
) -> None:
    """The share of this process."""
    parts = Parts(output, share, _job(config, translator, source))
    if not parts.is_done:
        with ExitStack() as stack:
            part, done = parts.open(stack)
            if done:
                print(f"going on after {done} lines in {part.name}", file=sys.stderr)
            lines, _ = open_input(str(source), stack)
            own = share.lines(lines, done)
            with parts.told():
                _stream(config, translator, own, part, lambda index: share.number(done + index))
            parts.finish()
    if not share.rank:
        parts.join()


def _refuse_bad_lines(source: Path, input_format: str) -> None:
    """Say now what would else end it half-way; what is mended is another text, to be begun anew."""
    lines, _ = open_input(str(source), ExitStack())
    read: Iterator[Any] = lines
    if input_format == "json":
        read = _requests(lines, lambda index: f"{source}:{index + 1}")
    deque(read, maxlen=0)


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


def _job(config: DictConfig, translator: "Translator", source: Path) -> str:
    """A hash of the model, the search, the text and all settings: what the output depends on."""
    from transformer.export.fingerprint import fingerprint_of

    text = source.stat()
    models = [fingerprint_of(model, translator.tokenizer) for model in translator.members]
    whole = [
        *(OmegaConf.to_container(config), models, str(translator.search)),
        *(str(source.resolve()), text.st_size, text.st_mtime_ns),
    ]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:12]
