"""``translate`` and its kin: ``predict``, ``score``, ``serve``, ``ask``, ``select``, ``shortlist``.

``translate`` and ``predict`` are Unix filters, one line in, one line out, flushed as it goes. From
a file to a file, the same command resumes. Each command imports its library function when it runs:
no other command takes time for it.
"""

import json
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from transformer.common.errors import InputError, Interrupted, code_of_stop
from transformer.common.files import given_path, named
from transformer.common.packages import require_package
from transformer.data.text.lines import MAX_LINE, decoded_lines, read_lines, too_long
from transformer.settings.commands import AskConfig, ServeConfig, ShortlistConfig
from transformer.settings.evaluation import ScoreConfig, SelectConfig
from transformer.settings.translator import PredictConfig, TranslateConfig

if TYPE_CHECKING:
    from transformer.commands.serve import Service
    from transformer.decoding.prediction import Predictor


def run_translate(config: TranslateConfig, arguments: Sequence[str]) -> None:
    """Translate the lines of the input, one by one."""
    from transformer.cli.threads import set_threads
    from transformer.commands.line_files import LineAssignment, regular_files
    from transformer.commands.translate import translate, translate_file, write_translations

    check_translate(config, arguments)
    if config.launch is not None:
        _launch(config)
        return
    if regular_files(config.input, config.output):
        try:
            translate_file(config, warn=_warn, loaded=set_threads)
        except KeyboardInterrupt as stop:
            raise Interrupted("stopped; the same command resumes", code_of_stop(stop)) from stop
        return
    if LineAssignment.from_environment().world > 1:
        raise InputError("several processes need a file to divide: set input= and output= too")
    name = str(config.input or "stdin")
    lines, ready = open_input(config.input)
    translations = translate(config, lines, name=name, ready=ready, loaded=set_threads)
    with ExitStack() as stack:
        output = open_output(config.output, stack)
        write_translations(
            translations, output, config.format, lambda index: f"{name}:{index + 1}", _warn
        )


def check_translate(config: TranslateConfig, arguments: Sequence[str]) -> None:
    """Raise InputError for what was asked for and the format does not show, and without Ray."""
    if config.launch is not None:
        # `translate_files` says it too, but a recipe asks here, before it trains.
        require_package("ray", f"launch={config.launch}", "ray")
    hidden = [text for text in arguments if text.startswith("decoding.nbest=")][-1:]
    if config.attention:
        hidden.append("attention=true")
    if config.timestamps and not config.has_subtitles:
        hidden.append("timestamps=true")
    if config.format != "json" and hidden:
        place = f"format={config.format}" if config.has_subtitles else "plain text"
        raise InputError(f"{' '.join(hidden)}: {place} has no place for it; add format=json")


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def run_predict(config: PredictConfig, _: Sequence[str]) -> None:
    """Write tags or probabilities of the lines of the input, by a model of one stack."""
    from transformer.cli.threads import set_search_threads
    from transformer.commands.line_files import format_line, regular_files
    from transformer.commands.predict import predict, predict_file

    def set_threads(predictor: "Predictor") -> None:
        set_search_threads(predictor.model.parameters())

    if regular_files(config.input, config.output):
        predict_file(config, loaded=set_threads)
        return
    lines, ready = open_input(config.input)
    name = str(config.input or "stdin")
    predictions = predict(config, lines, name=name, ready=ready, loaded=set_threads)
    with ExitStack() as stack:
        output = open_output(config.output, stack)
        for prediction in predictions:
            output.write(format_line(prediction, config.format).encode() + b"\n")
            output.flush()


def run_score(config: ScoreConfig, _: Sequence[str]) -> None:
    """Print the log-probability of given translations, one line a pair."""
    from transformer.cli.threads import set_threads
    from transformer.commands.score import score_targets

    if config.launch is not None:
        _launch(config)
        return
    for score in score_targets(config, loaded=set_threads):
        if config.format == "json":
            print(json.dumps(asdict(score), ensure_ascii=False))
        else:
            print(f"{score.log_probability:.6f}")


def _launch(config: TranslateConfig | ScoreConfig) -> None:
    """Write the blocks of ``launch=ray``, and print their number to stderr."""
    from transformer.commands.ray_data import score_files, translate_files

    # Without it, Ray sends statistics of each start to its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if isinstance(config, TranslateConfig):
            written = translate_files(config)
        else:
            written = score_files(config)
    except KeyboardInterrupt as stop:
        raise Interrupted("stopped; the same command resumes", code_of_stop(stop)) from stop
    before = f"; {written.done:,} blocks were there before" if written.done else ""
    print(
        f"{config.output}: {written.lines:,} lines in {written.blocks:,} blocks{before}",
        file=sys.stderr,
    )


def run_serve(config: ServeConfig, _: Sequence[str]) -> None:
    """Serve trained models over HTTP until a signal."""
    from transformer.cli.threads import set_search_threads
    from transformer.commands.serve import serve
    from transformer.training.cpu_allocator import return_freed_memory

    return_freed_memory()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    serve(config, started=_show_address, set_threads=set_search_threads)


def _show_address(service: "Service") -> None:
    pairs = ", ".join(f"{source} to {target}" for source, target in service.directions)
    print(f"translating from {pairs} at {service.url}", file=sys.stderr, flush=True)


def run_ask(config: AskConfig, _: Sequence[str]) -> None:
    """Let a server translate each line; progress goes to stderr, files and sizes to stdout."""
    from transformer.cli.progress import counted
    from transformer.cli.threads import set_threads
    from transformer.commands.ask import ask
    from transformer.recipes.remote_teacher import counts

    with counted("asked for different lines") as show:
        asked = ask(config, show=show, loaded=set_threads)
    sizes = ", ".join(f"{file} {size:,} lines" for file, size in asked.lines.items())
    print(f"{sizes}; answers: {counts(asked.answers.values())}")


def run_select(config: SelectConfig, _: Sequence[str]) -> None:
    """Write of each n-best list the candidate that a reference or a reverse model chooses."""
    from transformer.cli.threads import set_threads
    from transformer.commands.select import select

    select(config, loaded=set_threads)


def run_shortlist(config: ShortlistConfig, _: Sequence[str]) -> None:
    """Write the target tokens that are searched for each source token, and show their number."""
    from transformer.commands.shortlist import shortlist

    written = shortlist(config)
    shown = f"{written.mean:,.0f} of {written.vocabulary:,} tokens for a sentence on average"
    print(f"{written.pairs:,} pairs, by {written.method}: {shown}", file=sys.stderr)
    print(written.file)


def open_input(path: str | Path | None) -> tuple[Iterator[str], Callable[[], bool] | None]:
    """The lines, and whether the next one can be read without waiting (None: always)."""
    if path is not None:
        return read_lines(given_path(path)), None
    # Python's own reader has a buffer that select cannot see.
    reader = LineReader(sys.stdin)
    return iter(reader), reader.ready


def open_output(path: str | Path | None, stack: ExitStack) -> BinaryIO:
    """The file, or standard output; an OSError names the file."""
    if path is None:
        return sys.stdout.buffer
    file = given_path(path)
    stack.enter_context(named(file))
    return stack.enter_context(open(file, "wb"))


class LineReader:
    """Lines of a file descriptor, or a stream of one; they end at a line feed and nowhere else."""

    def __init__(self, source: int | TextIO) -> None:
        self.source = source
        self.pending = b""
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return decoded_lines(self._lines(), "stdin")

    def ready(self) -> bool:
        """Whether a whole line, or the end of the input, is there already."""
        while not self._holds_line and select.select([self.source], [], [], 0)[0]:
            self._read()
        return self._holds_line

    @property
    def _holds_line(self) -> bool:
        return self.ended or len(self.pending) > MAX_LINE or b"\n" in self.pending

    def _lines(self) -> Iterator[bytes]:
        for number in count(1):
            while not self._holds_line:
                self._read()
            line, end, self.pending = self.pending.partition(b"\n")
            if not line and not end:
                return
            if len(line) > MAX_LINE:
                raise too_long(f"stdin:{number}", None)
            yield line

    def _read(self) -> None:
        with named("stdin"):
            descriptor = self.source if isinstance(self.source, int) else self.source.fileno()
            chunk = os.read(descriptor, 1 << 16)
        self.pending += chunk
        self.ended = not chunk
