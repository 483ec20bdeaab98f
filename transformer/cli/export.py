"""``export``: the model for another program, written only if it is the same there.

``push`` uploads such a folder to the Hugging Face Hub, with its card.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.load import load_translator
from transformer.common.errors import InputError, require_package
from transformer.common.files import written_whole
from transformer.common.hub import hub_error, repository
from transformer.interchange.formats import FORMATS, folder_name
from transformer.model.checkpoint.locate import run_folder
from transformer.report.scores import require_new


def export(config: DictConfig, arguments: Sequence[str]) -> None:
    """Export a model."""
    exports = run_folder(resolve_path(config, "checkpoint")) / "export"
    folder = resolve_path(config, "output", exports / folder_name(config))
    require_new(folder)
    _write(config, arguments, folder)
    print(folder)


def push(config: DictConfig, arguments: Sequence[str]) -> None:
    """Push a model."""
    resolve_value(config, "format", Literal["huggingface", "safetensors"])
    name, revision = repository(resolve_value(config, "repo", str))
    private = resolve_value(config, "private", bool)
    from huggingface_hub import HfApi

    config.repo, api = name, HfApi()
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "export"
        _write(config, arguments, folder)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            done = api.upload_folder(repo_id=name, folder_path=folder, revision=revision)
        except Exception as error:  # The client lets the errors of several libraries through.
            raise hub_error(name, error) from error
    print(done.commit_url)


def _write(config: DictConfig, arguments: Sequence[str], folder: Path) -> None:
    """Write the model in its format as a new folder, and show how it was verified."""
    chosen = FORMATS[config.format]
    require_package(chosen.package, f"format={config.format}", chosen.extra)
    translator, run = load_translator(config, arguments)
    given = {"char", "words"} & {*translator.tokenizer.config.algorithms}
    if given and config.format != "safetensors":
        raise InputError(
            f"format={config.format} cuts text with SentencePiece, not as tokenizer={min(given)} "
            "does; choose format=safetensors"
        )
    with written_whole(folder) as part:
        part.mkdir()
        verified = chosen.write(translator, run, part, config)
        print(json.dumps(verified), file=sys.stderr)
