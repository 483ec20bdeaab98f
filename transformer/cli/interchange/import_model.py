"""``import``: a model of another framework becomes a run of this one."""

import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from transformer.checkpoint.checkpoint import portable_part, write_payload
from transformer.cli.config.compose import (
    compose_config,
    resolve_path,
    resolve_value,
    run_settings,
)
from transformer.common.cache import locked
from transformer.common.errors import InputError, errors_name, require_package
from transformer.common.files import HUB, given_path, written_whole
from transformer.common.hub import download, repository
from transformer.interchange import import_folder
from transformer.report.scores import require_new
from transformer.runs.config_file import write_config


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Import a model."""
    name = str(config.checkpoint)
    output = resolve_path(config, "output")
    require_new(output)
    folder = download(name) if name.startswith(HUB) else resolve_path(config, "checkpoint")
    if import_folder.is_own(folder) and (config.validation or config.test):
        reason = f"{folder} holds the config of a run; leave them out"
        raise InputError(f"validation= and test= have no effect: {reason}")
    for split in ("validation", "test"):
        named = resolve_value(config, split, str | Sequence[str] | None)
        for file in [named] if isinstance(named, str) else named or ():
            if not given_path(file).is_file():
                raise InputError(f"{split}: {file}: no such file")
    _write_run(folder, output, config)
    print(output)


def hub_run(name: str) -> Path:
    """The run in the cache that a model of the Hub becomes, once for each of its commits."""
    folder = download(name)
    from huggingface_hub import cached_assets_path

    namespace = repository(name)[0]
    cache = cached_assets_path("transformer", namespace=namespace, subfolder=folder.name)
    with locked(cache):
        if not (output := cache / "run").is_dir():
            _write_run(folder, output, compose_config("import", ["checkpoint=hub", "output=run"]))
            print(f"{name} is imported as the run {output}", file=sys.stderr)
    return output


def _write_run(folder: Path, output: Path, config: DictConfig) -> None:
    for package in ("google.protobuf", "safetensors"):
        require_package(package, "import", "huggingface")
    with errors_name(folder):
        if import_folder.is_own(folder):
            payload = import_folder.export_payload(folder)
        else:
            found = import_folder.read_folder(folder)
            payload = import_folder.imported_payload(found, run_settings(_config(config, found)))
    with written_whole(output) as part:
        (part / "checkpoints").mkdir(parents=True)
        write_payload(payload, part / "checkpoints" / "best.ckpt")
        write_config(portable_part(payload).config, part)


def _config(config: DictConfig, found: import_folder.Imported) -> DictConfig:
    composed = compose_config("train", ["data=files"])
    composed.model.update(found.model)
    composed.decoding.update(found.decoding)
    pair = resolve_value(config, "languages", str | None)
    source, target = pair.rpartition("-")[::2] if pair else found.languages
    composed.data.source = source or composed.data.source
    composed.data.target = target or composed.data.target
    if (tags := found.tokenizer.tags).both_sides:
        composed.data.target_tag = "both"
        for code in (composed.data.source, composed.data.target):
            if code not in tags.targets:
                raise InputError(
                    f"{code} is no language of the model; import it with languages=SOURCE-TARGET, "
                    f"two of {', '.join(tags.targets[:20])}{', …' * bool(tags.targets[20:])}"
                )
    for split in ("validation", "test"):
        composed.data[split] = resolve_value(config, split, str | Sequence[str] | None)
    return composed
