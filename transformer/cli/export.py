"""``export``: the model for another program, written only if it is the same there."""

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_path
from transformer.cli.load import load_translator
from transformer.common.errors import InputError, how_to_install
from transformer.common.files import written_whole
from transformer.interchange.formats import FORMATS
from transformer.model.checkpoint.locate import run_folder
from transformer.report.scores import require_writable


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Export a model."""
    if config.format not in FORMATS:
        raise InputError(f"format={config.format} is unknown; choose {' or '.join(FORMATS)}")
    chosen = FORMATS[config.format]
    if find_spec(chosen.package) is None:
        needed = f"format={config.format} needs {chosen.package}"
        raise InputError(f"{needed}: {how_to_install(chosen.extra)}")
    exports = run_folder(resolve_path(config, "checkpoint")) / "export"
    folder = resolve_path(config, "output", exports / chosen.folder_name(config))
    if folder.exists():
        raise InputError(f"{folder} exists; remove it, or choose another with output=")
    translator, run = load_translator(config, arguments)
    given = {"char", "words"} & {*translator.tokenizer.config.algorithms}
    if given and config.format != "safetensors":
        raise InputError(
            f"format={config.format} cuts text with SentencePiece, not as tokenizer={min(given)} "
            "does; choose format=safetensors"
        )
    require_writable(folder.parent)
    with written_whole(folder) as part:
        part.mkdir()
        verified = chosen.write(translator, run, part, config)
        print(json.dumps(verified), file=sys.stderr)
    print(folder)
