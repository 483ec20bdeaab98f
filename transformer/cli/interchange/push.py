"""``push``: a model is exported, verified, and uploaded to the Hugging Face Hub with its card."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_value
from transformer.cli.interchange.export import write_export
from transformer.common.hub import hub_error, repository


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Push a model."""
    resolve_value(config, "format", Literal["huggingface", "safetensors"])
    name, revision = repository(resolve_value(config, "repo", str))
    private = resolve_value(config, "private", bool)
    from huggingface_hub import HfApi

    config.repo, api = name, HfApi()
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "export"
        write_export(config, arguments, folder)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            done = api.upload_folder(repo_id=name, folder_path=folder, revision=revision)
        except Exception as error:  # The client lets the errors of several libraries through.
            raise hub_error(name, error) from error
    print(done.commit_url)
