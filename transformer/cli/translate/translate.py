"""``translate``: a Unix filter, one line in, one line out; or a file to a file, which resumes."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from transformer.cli.threads import set_threads
from transformer.cli.translate.line_io import open_input, open_output
from transformer.commands.lines import regular_files
from transformer.commands.part_files import LineAssignment
from transformer.commands.translate import translate, translate_file, write_translations
from transformer.common.errors import InputError, Interrupted, require_package
from transformer.settings.translator import TranslateConfig


def run(config: TranslateConfig, arguments: Sequence[str]) -> None:
    """Translate the lines of the input, one by one."""
    check(config, arguments)
    if config.launch is not None:
        from transformer.cli.translate.launch import launch  # a plain call needs less

        launch(config)
        return
    if regular_files(config.input, config.output):
        try:
            translate_file(config, warn=_warn, loaded=set_threads)
        except KeyboardInterrupt as stop:
            raise Interrupted("stopped; the same command resumes") from stop
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


def check(config: TranslateConfig, arguments: Sequence[str]) -> None:
    """Raise InputError for what was asked for and plain text does not show, and without Ray."""
    if config.launch is not None:
        # `translate_files` says it too, but a recipe asks here, before it trains.
        require_package("ray", f"launch={config.launch}", "ray")
    typed = [one for one in arguments if one.startswith("decoding.nbest=")][-1:]
    typed += ["attention=true"] * config.attention
    if config.format == "text" and typed:
        raise InputError(f"{' '.join(typed)}: plain text has no place for it; add format=json")


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)
