"""Which program searches: this one, or CTranslate2 with an export of the same model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, ListConfig

from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.load import load_translator, require_packages, resolve_device
from transformer.common.errors import InputError
from transformer.decoding.translation.translator import Translator
from transformer.model.checkpoint.locate import is_ctranslate2, run_folder


def translator_by_engine(
    config: DictConfig, arguments: Sequence[str]
) -> tuple[Translator, dict[str, Any]]:
    """The translator of ``engine=``, and the config of the run that trained the model."""
    if resolve_value(config, "engine", Literal["torch", "ctranslate2"]) == "torch":
        return load_translator(config, arguments)
    if isinstance(config.checkpoint, ListConfig) or config.precision not in (None, "float32"):
        raise InputError(
            "engine=ctranslate2 takes one checkpoint and no precision=; an export has its own: "
            "transformer export quantization=int8"
        )
    require_packages("engine=ctranslate2", "export", "ctranslate2")
    folder = _export_folder(config)
    device = resolve_device(config.device)
    if is_ctranslate2(resolve_path(config, "checkpoint")):
        for key in ("alignment", "attention", "heads_off"):
            if config.get(key):
                raise InputError(
                    f"{key}= needs the run that {config.checkpoint} was exported from; set "
                    f"checkpoint=RUN engine_folder={config.checkpoint}"
                )
        # CTranslate2 alone has the weights of an export.
        config = config.copy()
        config.device = "meta"
    translator, trained = load_translator(config, arguments)
    from transformer.interchange.ctranslate2_engine import CTranslate2Searcher

    translator.searcher = CTranslate2Searcher(translator, folder, device)
    return translator, trained


def _export_folder(config: DictConfig) -> Path:
    """The folder that the user names, else the checkpoint if it is one, else that of the run."""
    folder = resolve_path(config, "engine_folder", resolve_path(config, "checkpoint"))
    if is_ctranslate2(folder):
        return folder
    if config.engine_folder is None:
        folder = run_folder(folder) / "export"
    found = sorted(file.parent for file in folder.glob("ctranslate2*/model.bin"))
    if len(found) == 1:
        return found[0]
    advice = f"make one: transformer export checkpoint={config.checkpoint} format=ctranslate2"
    if found:
        advice = f"choose one: engine_folder={' or '.join(map(str, found))}"
    raise InputError(
        f"{folder} holds {len(found) or 'no'} exports for engine=ctranslate2; {advice}"
    )
