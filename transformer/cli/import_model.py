"""``import``: a model of another framework becomes a run of this one."""

from collections.abc import Sequence
from importlib.util import find_spec

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import compose_run, resolve_path, resolve_value
from transformer.common.errors import InputError, errors_name, how_to_install
from transformer.common.files import written_whole
from transformer.interchange.imported import Imported, imported_payload, read_folder
from transformer.model.checkpoint.checkpoint import write_payload
from transformer.report.scores import require_writable


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Import a model."""
    if not all(map(find_spec, ("google.protobuf", "safetensors"))):
        raise InputError(f"import needs more packages: {how_to_install('huggingface')}")
    folder, output = resolve_path(config, "checkpoint"), resolve_path(config, "output")
    if not folder.is_dir():
        raise InputError(f"checkpoint={folder} is no folder")
    if output.exists():
        raise InputError(f"{output} exists; remove it, or choose another with output=")
    require_writable(output.parent)
    with errors_name(folder):
        found = read_folder(folder)
    composed = _config(config, found)
    values = OmegaConf.to_container(composed)
    assert isinstance(values, dict)
    payload = imported_payload(found, {str(key): value for key, value in values.items()})
    with written_whole(output) as part:
        (part / "checkpoints").mkdir(parents=True)
        write_payload(payload, part / "checkpoints" / "best.ckpt")
        (part / "config.yaml").write_text(OmegaConf.to_yaml(composed), encoding="utf-8")
    print(output)


def _config(config: DictConfig, found: Imported) -> DictConfig:
    """The config of a training run with this model and this text."""
    overrides = [f"model.{key}={value}" for key, value in found.model.items()]
    overrides += [f"decoding.{key}={value}" for key, value in found.decoding.items()]
    composed, _ = compose_run(["data=files", *overrides])
    pair = resolve_value(config, "languages", str | None)
    source, target = pair.rpartition("-")[::2] if pair else found.languages
    composed.data.source = source or composed.data.source
    composed.data.target = target or composed.data.target
    if (tags := found.tokenizer.tags).both_sides:
        composed.data.target_tag = "both"
        for code in (composed.data.source, composed.data.target):
            if code not in tags.targets:
                raise InputError(
                    f"{code} is no language of the model; set languages=SOURCE-TARGET, of "
                    f"{', '.join(tags.targets[:20])}, …"
                )
    for split in ("validation", "test"):
        composed.data[split] = resolve_value(config, split, str | Sequence[str] | None)
    return composed
