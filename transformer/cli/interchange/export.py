"""``export``: the model for another program, written only if it is the same there."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from transformer.checkpoint.locate import run_folder
from transformer.cli.config.compose import resolve_path
from transformer.cli.load import load_translator
from transformer.common.errors import InputError, require_package
from transformer.common.files import written_whole
from transformer.interchange.export_formats import FORMATS, folder_name
from transformer.report.scores import require_new


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Export a model."""
    exports = run_folder(resolve_path(config, "checkpoint")) / "export"
    folder = resolve_path(config, "output", exports / folder_name(config))
    require_new(folder)
    write_export(config, arguments, folder)
    print(folder)


def write_export(config: DictConfig, arguments: Sequence[str], folder: Path) -> None:
    """Write the model in its format as a new folder, and show how it was verified."""
    chosen = FORMATS[config.format]
    if chosen.package is not None:
        require_package(chosen.package, f"format={config.format}", chosen.extra)
    translator, run = load_translator(config, arguments)
    given = {"bytes", "char", "huggingface", "words"} & {*translator.tokenizer.config.algorithms}
    if given and not chosen.any_tokens:
        raise InputError(
            f"format={config.format} cuts text with SentencePiece, not as tokenizer={min(given)} "
            "does; choose format=safetensors"
        )
    with written_whole(folder) as part:
        part.mkdir(parents=True)
        verified = chosen.write(translator, run, part, config)
        print(json.dumps(verified), file=sys.stderr)
