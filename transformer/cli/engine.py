"""The engine that searches: ours, or CTranslate2 with an export of the checkpoint."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig, ListConfig

from transformer.checkpoint.locate import is_ctranslate2, is_exported, run_folder
from transformer.cli.config.compose import compose_config, resolve_path, resolve_value
from transformer.cli.load import load_translator, resolve_device
from transformer.common.errors import InputError, require_package
from transformer.data.text.lines import file_digest
from transformer.decoding.search.shortlist import FILE
from transformer.decoding.translation.fingerprint import compute_fingerprint
from transformer.decoding.translation.translator import Translator
from transformer.model.transformer import Transformer
from transformer.settings.run import RunConfig

log = logging.getLogger(__name__)


def translator_by_engine(
    config: DictConfig, arguments: Sequence[str]
) -> tuple[Translator, RunConfig]:
    """The translator of ``engine=``, and the config of the run that trained the model."""
    engine = resolve_value(config, "engine", Literal["torch", "ctranslate2", "auto"])
    if engine == "ctranslate2":
        return _by_ctranslate2(config, arguments)
    translator, trained = load_translator(config, arguments)
    if engine == "auto":
        try:
            folder = _automatic_export(config, translator)
            from transformer.interchange.ctranslate2_engine import CTranslate2Engine

            translator = replace(translator, engine=CTranslate2Engine(folder))
            log.warning("engine=auto: CTranslate2 searches, with %s", folder)
        except (InputError, OSError) as reason:  # a run directory may be read-only
            log.warning("engine=auto: torch searches; %s", reason)
    return translator, trained


def _by_ctranslate2(config: DictConfig, arguments: Sequence[str]) -> tuple[Translator, RunConfig]:
    if isinstance(config.checkpoint, ListConfig) or config.precision not in (None, "float32"):
        raise InputError(
            "engine=ctranslate2 takes one checkpoint and no precision=; an export has its own: "
            "transformer export quantization=int8"
        )
    require_package("ctranslate2", "engine=ctranslate2", "export")
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
    from transformer.interchange.ctranslate2_engine import CTranslate2Engine

    return replace(translator, engine=CTranslate2Engine(folder, device)), trained


def _automatic_export(config: DictConfig, translator: Translator) -> Path:
    """The verified export of the checkpoint, made if it is missing; InputError says why not."""
    require_package("ctranslate2", "CTranslate2", "export")
    search, model = translator.search, translator.model
    if not isinstance(model, Transformer) or is_exported(resolve_path(config, "checkpoint")):
        raise InputError("CTranslate2 is for one checkpoint of a run")
    if translator.device.type != "cpu" or config.precision not in (None, "float32"):
        raise InputError("CTranslate2 is for float32 on a CPU; export has quantization=int8")
    if config.get("heads_off"):
        raise InputError("heads_off= is of this call alone")
    if search.stopping == "exact" and search.beam_size > 1:
        raise InputError(
            "decoding.stopping=exact is not a search of CTranslate2; decoding.stopping=full is"
        )
    from transformer.interchange.ctranslate2_engine import check_search

    check_search(search, translator.tokenizer)
    run = run_folder(resolve_path(config, "checkpoint"))
    name = f"auto-{compute_fingerprint(model, translator.tokenizer)[:12]}"
    if (run / FILE).is_file():  # the export has it
        name += f"-{file_digest(run / FILE).hex()[:12]}"
    folder = run / "export" / name
    if not folder.is_dir():
        from transformer.cli.interchange.export import write_export

        export = compose_config("export", ["checkpoint=RUN", "format=ctranslate2"])
        export.checkpoint, export.trust = config.checkpoint, config.trust
        log.warning("engine=auto: writing %s and comparing it on validation", folder)
        write_export(export, [], folder)
    return folder


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
