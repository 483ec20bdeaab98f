"""``push``: a model is exported, verified, and uploaded to the Hugging Face Hub with its card."""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from omegaconf import DictConfig

from transformer.checkpoint.locate import run_folder
from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.interchange.export import write_export
from transformer.common.errors import InputError
from transformer.common.hub import hub_error, repository
from transformer.report.scores import require_new


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Push a model."""
    resolve_value(config, "format", Literal["huggingface", "safetensors"])
    name, revision = repository(resolve_value(config, "repo", str))
    private = resolve_value(config, "private", bool)
    config.repo = name
    if resolve_value(config, "dry_run", bool):
        exports = run_folder(resolve_path(config, "checkpoint")) / "export"
        folder = resolve_path(config, "output", exports / "push")
        require_new(folder)
        write_export(config, arguments, folder)
        print(f"dry_run=true: nothing is uploaded to {name}; this is the folder", file=sys.stderr)
        print(folder)
        return
    if config.output is not None:
        raise InputError(f"output={config.output} is for dry_run=true; add it")
    from huggingface_hub import HfApi

    api = HfApi()
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "export"
        write_export(config, arguments, folder)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            done = api.upload_folder(repo_id=name, folder_path=folder, revision=revision)
        except Exception as error:  # The client lets the errors of several libraries through.
            raise hub_error(name, error) from error
    print(done.commit_url)
