"""``import``: a model of another framework becomes a run of this one."""

import logging
from pathlib import Path

from transformer.checkpoint.checkpoint import portable_part, write_payload
from transformer.checkpoint.run_directory import write_config
from transformer.common.cache import locked
from transformer.common.errors import InputError, errors_name, require_package
from transformer.common.files import HUB, given_path, require_new, written_whole
from transformer.common.hub import download, repository
from transformer.interchange import import_folder
from transformer.settings.commands import ImportConfig
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig

log = logging.getLogger(__name__)


def import_model(config: ImportConfig) -> Path:
    """Write the run of a model of another framework; returns its directory.

    Raises InputError for a model that this framework does not have, and MissingFile for an unknown
    model of the Hub.
    """
    is_remote = config.checkpoint.startswith(HUB)
    if config.output is None:
        if not is_remote:
            raise InputError("output= names no folder for the run; give one")
        return _cached(config)
    output = given_path(config.output)
    require_new(output)
    folder = download(config.checkpoint) if is_remote else given_path(config.checkpoint)
    for split, names in (("validation", config.validation), ("test", config.test)):
        for file in [names] if isinstance(names, str) else names or ():
            if not given_path(file).is_file():
                raise InputError(f"{split}: {file}: no such file")
    _write_run(folder, output, config)
    return output


def _cached(config: ImportConfig) -> Path:
    folder = download(config.checkpoint)
    from huggingface_hub import cached_assets_path

    namespace = repository(config.checkpoint)[0]
    cache = cached_assets_path("transformer", namespace=namespace, subfolder=folder.name)
    with locked(cache):
        if not (output := cache / "run").is_dir():
            _write_run(folder, output, config)
            log.warning("%s is imported as the run %s", config.checkpoint, output)
    return output


def _write_run(folder: Path, output: Path, config: ImportConfig) -> None:
    for package in ("google.protobuf", "safetensors"):
        require_package(package, "import", "huggingface")
    with errors_name(folder):
        if import_folder.is_own(folder):
            if config.languages or config.validation or config.test:
                reason = "it holds the config of a run; leave them out"
                raise InputError(f"languages=, validation= and test= have no effect: {reason}")
            payload = import_folder.export_payload(folder)
        else:
            found = import_folder.read_folder(folder)
            payload = import_folder.imported_payload(found, _run(config, found))
    with written_whole(output) as part:
        (part / "checkpoints").mkdir(parents=True)
        write_payload(payload, part / "checkpoints" / "best.ckpt")
        write_config(portable_part(payload).config, part)


def _run(config: ImportConfig, found: import_folder.Imported) -> RunConfig:
    pair = config.languages
    named = pair.rpartition("-")[::2] if pair else found.languages
    source, target = named[0] or "source", named[1] or "target"  # as data=files
    tags = found.tokenizer.tags
    for code in (source, target) if tags.both_sides else ():
        if code not in tags.targets:
            raise InputError(
                f"{code} is no language of the model; import it with languages=SOURCE-TARGET, "
                f"two of {', '.join(tags.targets[:20])}{', …' * bool(tags.targets[20:])}"
            )
    data = DataConfig(
        corpus="files",
        source=source,
        target=target,
        target_tag="both" if tags.both_sides else DataConfig.target_tag,
        validation=config.validation,
        test=config.test,
    )
    return RunConfig(data=data, model=found.model, decoding=found.decoding)
