"""``export`` and ``push``: the model for another program, written only if it is the same there."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from transformer.checkpoint.run_directory import run_folder
from transformer.common.errors import InputError
from transformer.common.files import require_new
from transformer.common.hub import hub_error, repository
from transformer.interchange.export_formats import folder_name, write_export
from transformer.interchange.translators import load_translator, local_run
from transformer.settings.commands import ExportConfig, PushConfig


class Exported(NamedTuple):
    """The folder of an export, and what its verification found."""

    folder: Path
    verified: dict[str, Any]


class Pushed(NamedTuple):
    """``where`` is the URL of the commit, or the folder of a dry run; see `Exported`."""

    where: str
    verified: dict[str, Any]


def export(config: ExportConfig) -> Exported:
    """Write the model in its format as a new folder; InputError if it would be worse there."""
    return _export(config, config.output, folder_name(config))


def push(config: PushConfig) -> Pushed:
    """Export the model, and upload it to the Hugging Face Hub with its card."""
    name, revision = repository(config.repo)
    if config.dry_run:
        folder, verified = _export(config.export(name), config.output, "push")
        return Pushed(str(folder), verified)
    if config.output is not None:
        raise InputError(f"output={config.output} is for dry_run=true; add it")
    from huggingface_hub import HfApi

    api = HfApi()
    with TemporaryDirectory() as parent:
        folder, verified = _export(config.export(name), Path(parent) / "export", "")
        try:
            api.create_repo(name, private=config.private, exist_ok=True)
            done = api.upload_folder(repo_id=name, folder_path=folder, revision=revision)
        except Exception as error:  # The client lets the errors of several libraries through.
            raise hub_error(name, error) from error
    return Pushed(str(done.commit_url), verified)


def _export(config: ExportConfig, output: Path | None, name: str) -> Exported:
    config = replace(config, checkpoint=str(local_run(config.checkpoint)))
    folder = run_folder(Path(config.checkpoint)) / "export" / name
    folder = folder if output is None else output
    require_new(folder)
    translator, run = load_translator(config.translator, as_stored=True)
    return Exported(folder, write_export(translator, run, config, folder))
