"""``translate``: a Unix filter, one line in, one line out, flushed as it goes."""

import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from omegaconf import DictConfig

from transformer.cli.compose import compose_config
from transformer.cli.exit import exit_code_of
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.decoding.constraints import Request


def main(arguments: Sequence[str]) -> int:
    """Translate; returns the exit code."""
    return exit_code_of(lambda: _translate(compose_config("translate", arguments), arguments))


def _translate(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.engine import translator_by_engine
    from transformer.cli.load import refuse_idle
    from transformer.training.typed import typed_value

    wanted = {key: typed_value(config[key], bool, key) for key in ("attention", "alignment")}
    for key in ("format", "input_format"):
        if config[key] not in ("text", "json"):
            raise InputError(f"{key}={config[key]} is unknown; choose text or json")
    if config.attention and config.format == "text":
        raise InputError("attention=true needs format=json")
    if not any(wanted.values()):
        refuse_idle(config, ("alignment_head",), "alignment=true or attention=true")
    if not config.alignment:
        refuse_idle(config, ("alignment_threshold",), "alignment=true")
    translator = translator_by_engine(config, arguments)

    with ExitStack() as stack:
        lines, ready = _open_input(config.input, stack)
        output = _open_output(config.output, stack)
        name = config.input or "stdin"
        requests = lines if config.input_format == "text" else _requests(lines, name)
        found = translator.translate_stream(requests, ready=ready, **wanted)
        for number, translation in enumerate(found, start=1):
            if config.format == "json":
                line = json.dumps(translation.to_json(), ensure_ascii=False)
            else:
                line = translation.to_line()
                if translation.unmet:
                    _warn(f"{name}:{number}: unmet: {'; '.join(translation.unmet)}")
            output.write(line.encode() + b"\n")
            output.flush()


def _requests(lines: Iterator[str], name: str) -> "Iterator[Request]":
    from transformer.decoding.constraints import Request

    for number, line in enumerate(lines, start=1):
        yield Request.parse(line, f"{name}:{number}")


def _warn(message: str) -> None:
    """The text output has no other place for it."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def _open_input(
    path: str | None, stack: ExitStack
) -> tuple[Iterator[str], Callable[[], bool] | None]:
    """The lines, and whether the next one can be had without waiting (None: always)."""
    if path is not None:
        from transformer.data.corpus import read_lines

        return read_lines(Path(path)), None
    # A reader of our own: Python's hides whether it still holds lines, which select cannot see.
    reader = _LineReader(sys.stdin.fileno())
    return iter(reader), reader.ready


def _open_output(path: str | None, stack: ExitStack) -> BinaryIO:
    if path is None:
        return sys.stdout.buffer
    try:
        return stack.enter_context(open(path, "wb"))
    except OSError as error:
        raise InputError(f"output={path} cannot be written: {error.strerror}") from error


class _LineReader:
    """Lines of a file descriptor; they end at a line feed and nowhere else."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pending = b""
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        while chunk := os.read(self.descriptor, 1 << 16):
            self.pending += chunk
            while b"\n" in self.pending:
                line, _, self.pending = self.pending.partition(b"\n")
                yield self._decode(line)
        if self.pending:
            line, self.pending = self.pending, b""
            yield self._decode(line)

    def ready(self) -> bool:
        """Whether a whole line, or the end of the input, is there already."""
        if b"\n" in self.pending:
            return True
        return bool(select.select([self.descriptor], [], [], 0)[0])

    def _decode(self, line: bytes) -> str:
        self.number += 1
        try:
            return line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"stdin:{self.number}: byte {error.start + 1} of the line is not UTF-8; "
                "convert the text first (iconv -t UTF-8)"
            ) from error
