"""``attention``: what every head looks at in one sentence pair, as page, picture, numbers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError
from transformer.model.checkpoint.locate import run_folder

if TYPE_CHECKING:
    from transformer.evaluation.attention.view import AttentionView


def main(arguments: Sequence[str]) -> int:
    """Show attention; returns the exit code."""
    return run_to_exit_code(lambda: _attention(arguments))


def _attention(arguments: Sequence[str]) -> None:
    keys, sentences = _literal(arguments, ("text", "target"))
    config = compose_config("attention", keys)
    if "text" not in sentences:
        raise InputError('text= is missing; give a sentence, text="A man sleeps."')
    from transformer.cli.evaluate.attention_view import attention_view
    from transformer.cli.load import load_translator
    from transformer.common.schema import typed_value
    from transformer.report.attention_figure import require_matplotlib
    from transformer.report.attention_summary import print_best

    png = typed_value(config.png, bool, "png")
    if png:
        require_matplotlib()
    translator, run = load_translator(config, keys)
    view = attention_view(config, sentences["text"], sentences.get("target"), translator, run)
    print_best(view)
    for path in _write(view, _folder(config), png):
        print(path)


def _literal(arguments: Sequence[str], names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The sentences among the arguments, and the arguments with a mere sign in their place.

    A sentence is taken as it is: to Hydra, its commas and brackets would mean something.
    """
    kept, sentences = [], {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or name not in names or argument == "target=null":
            kept.append(argument)
            continue
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"{name}= is not UTF-8; convert it first") from error
        sentences[name] = value
        kept.append(f"{name}=given")
    return kept, sentences


def _folder(config: DictConfig) -> Path:
    if config.output is None:
        return run_folder(resolve_path(config, "checkpoint")) / "attention"
    return resolve_path(config, "output")


def _write(view: "AttentionView", folder: Path, png: bool) -> list[Path]:
    """The files, each whole or not at all."""
    from transformer.common.files import written_whole
    from transformer.report.attention_page import attention_page

    numbers = json.dumps(view.to_json(), indent=1, ensure_ascii=False) + "\n"
    files = {
        "attention.html": attention_page(view).encode("utf-8"),
        "attention.json": numbers.encode("utf-8"),
    }
    if png:
        from transformer.report.attention_figure import attention_figure

        files["attention.png"] = attention_figure(view)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with written_whole(folder / name) as part:
                part.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written to ({error.strerror}); choose another with output=FOLDER"
        ) from error
    return [folder / name for name in files]
