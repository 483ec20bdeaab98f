"""``attention``: the weights of every head in one sentence pair, as page, picture, numbers."""

import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from transformer.cli.config.compose import (
    compose_config,
    fetch_models,
    resolve_path,
    resolve_value,
    trust_code,
)
from transformer.common.errors import how_to_install
from transformer.model.checkpoint.locate import run_folder


def run(arguments: Sequence[str]) -> None:
    """Show the attention in one sentence pair."""
    keys, sentences = _literal(arguments, ("text", "target"))
    config = compose_config("attention", keys)
    trust_code(config)
    fetch_models(config)
    from transformer.cli.evaluate.attention_view import attention_view
    from transformer.cli.load import load_translator
    from transformer.common.files import written_whole
    from transformer.report.attention_figure import attention_figure
    from transformer.report.attention_page import attention_page
    from transformer.report.heads import print_best
    from transformer.report.scores import require_writable

    if (png := resolve_value(config, "png", bool)) and find_spec("matplotlib") is None:
        print(f"note: attention.png needs matplotlib; {how_to_install('plot')}", file=sys.stderr)
        png = False
    default = run_folder(resolve_path(config, "checkpoint")) / "attention"
    folder = resolve_path(config, "output", default)
    translator, run = load_translator(config, keys)
    view = attention_view(config, sentences["text"], sentences.get("target"), translator, run)
    print_best(view)
    require_writable(folder)
    numbers = json.dumps(view.to_json(), indent=1, ensure_ascii=False) + "\n"
    files = {"attention.html": attention_page(view).encode(), "attention.json": numbers.encode()}
    if png:
        files["attention.png"] = attention_figure(view)
    for name, content in files.items():
        with written_whole(folder / name) as part:
            part.write_bytes(content)
        print(folder / name)


def _literal(arguments: Sequence[str], names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments with ``given`` in place of sentences, and the sentences as they were typed.

    Hydra would read commas and brackets of a sentence as more than text.
    """
    kept, sentences = [], {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name in names and argument != "target=null":
            # Bytes that are not UTF-8 become signs of replacement.
            sentences[name] = os.fsencode(value).decode(errors="replace")
            argument = f"{name}=given"
        kept.append(argument)
    return kept, sentences
