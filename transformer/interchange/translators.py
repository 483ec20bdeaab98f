"""Loads a translator by its settings: a run, an ensemble, an export, or a model of the Hub."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from transformer.checkpoint import run_directory
from transformer.checkpoint.checkpoint import Checkpoint, Loaded
from transformer.checkpoint.exported import load_model
from transformer.common.errors import InputError, MissingFile
from transformer.common.files import HUB, given_path
from transformer.common.hub import is_hub_name
from transformer.common.packages import require_package
from transformer.data.corpora.resolve import names_text
from transformer.data.text.lines import file_digest
from transformer.data.tokenization.tags import SourceTags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner
from transformer.decoding.device import find_device, suited_batch_tokens, suited_precision
from transformer.decoding.fingerprint import compute_fingerprint
from transformer.decoding.search.model_step import Ensemble, Model
from transformer.decoding.search.shortlist import FILE, with_shortlist_of
from transformer.decoding.translator import Engine, Translator, trained_with
from transformer.model.head_masks import head_name, parse_heads, switch_off
from transformer.model.layers.quantization import in_precision
from transformer.model.transformer import Transformer
from transformer.settings.decoding import changed_search
from transformer.settings.run import RunConfig
from transformer.settings.translator import TranslatorConfig

log = logging.getLogger(__name__)


def load_translator(
    config: TranslatorConfig,
    *,
    as_stored: bool = False,
    loaded: Loaded = lambda checkpoints: None,
) -> tuple[Translator, RunConfig]:
    """Load the translator, and the config of the run that trained it.

    Args:
        config: The settings; InputError if they contradict each other or the checkpoint.
        as_stored: The weights are read or written: in float32, tied as they are stored.
        loaded: Is called with the checkpoints before an engine starts.
    """
    paths = [local_run(name) for name in config.checkpoints]
    if config.engine == "ctranslate2":
        return _with_export(config, paths, loaded)
    translator, run = _load(config, paths, find_device(config.device), loaded, as_stored=as_stored)
    if config.engine == "auto":
        try:
            folder = _automatic_export(config, paths, translator)
            translator = replace(translator, engine=_engine(folder))
            log.warning("engine=auto: CTranslate2 searches, with %s", folder)
        except (InputError, OSError) as reason:  # a run directory may be read-only
            log.warning("engine=auto: torch searches; %s", reason)
    return translator, run


def fetched(name: str | Path) -> Path:
    """A path, or the imported run of ``hf://USER/MODEL``."""
    return local_run(str(name)) if str(name).startswith(HUB) else given_path(name)


def local_run(name: str) -> Path:
    """A path or, if neither it nor its folder exists, the imported run of the model USER/MODEL."""
    if not is_hub_name(name):
        return given_path(name)
    from transformer.interchange.import_model import import_model  # with all architectures
    from transformer.settings.commands import ImportConfig

    try:
        return import_model(ImportConfig(HUB + name.removeprefix(HUB)))
    except MissingFile:
        if name.startswith(HUB):
            raise
        return given_path(name)


def _load(
    config: TranslatorConfig,
    paths: Sequence[Path],
    device: torch.device,
    loaded: Loaded,
    *,
    as_stored: bool = False,
) -> tuple[Translator, RunConfig]:
    checkpoints = load_checkpoints(paths, trusted=config.trust)
    loaded(checkpoints)
    trained = trained_with(checkpoints[0])
    search = changed_search(trained.search, config.decoding)
    translator = Translator(
        _model(config, checkpoints, device, as_stored=as_stored),
        trained.tokenizer.tagged(SourceTags(config.to, config.tag, config.from_)),
        with_shortlist_of(search, paths[0]),
        suited_batch_tokens(config.batch_tokens, device),
        _aligner(config, trained.aligner),
        trained.aligner.head,
        trained.limits,
    )
    return translator, checkpoints[0].config


def load_checkpoints(paths: Sequence[Path], *, trusted: bool = False) -> list[Checkpoint]:
    """The checkpoints, or exports, of one vocabulary."""
    checkpoints = [_checkpoint(path, trusted=trusted) for path in paths]
    vocabulary = Tokenizer.from_state(checkpoints[0].portable.tokenizer).fingerprint
    for checkpoint in checkpoints[1:]:
        if Tokenizer.from_state(checkpoint.portable.tokenizer).fingerprint != vocabulary:
            raise InputError(
                f"{checkpoint.path} has another vocabulary than {checkpoints[0].path}; an ensemble "
                "needs models that were trained with the same tokenizer"
            )
    return checkpoints


def _checkpoint(path: Path, *, trusted: bool) -> Checkpoint:
    if run_directory.is_ctranslate2(path):
        from transformer.interchange.ctranslate2 import read_ctranslate2

        return read_ctranslate2(path)
    return load_model(path, trusted=trusted)


def _model(
    config: TranslatorConfig,
    checkpoints: Sequence[Checkpoint],
    device: torch.device,
    *,
    as_stored: bool,
) -> Model:
    precision = suited_precision(config.precision, device)
    heads_off = config.heads_off or ()
    names = [heads_off] if isinstance(heads_off, str) else heads_off
    models = []
    for checkpoint in checkpoints:
        if run_directory.is_ctranslate2(checkpoint.path) and device.type != "meta":
            raise InputError(f"{checkpoint.path} {run_directory.ENGINE_EXPORT}")
        model = checkpoint.model
        switch_off(model, parse_heads(model, names))
        model = model.float() if as_stored else in_precision(model, precision, device)
        models.append(model.to(device))
    if len(models) > 1:
        return Ensemble(models, config.averaging or "probability")
    if config.averaging is not None:
        raise InputError(f"averaging={config.averaging} is of ensembles: checkpoint=[PATH,PATH]")
    return models[0]


def _aligner(config: TranslatorConfig, aligner: Aligner) -> Aligner:
    if config.alignment_head is not None:
        head = head_name(f"cross.{config.alignment_head}")
        if head is None:
            raise InputError(
                f"alignment_head={config.alignment_head} is not a head; write LAYER.HEAD, such as "
                "2.0"
            )
        if head != aligner.head:
            aligner = Aligner(head)
    if config.alignment_threshold is not None:
        aligner = replace(aligner, near_best=config.alignment_threshold)
    return aligner


def _engine(folder: Path, device: torch.device | None = None) -> Engine:
    from transformer.interchange.ctranslate2 import CTranslate2Engine

    return CTranslate2Engine(folder, device)


def _with_export(
    config: TranslatorConfig, paths: Sequence[Path], loaded: Loaded
) -> tuple[Translator, RunConfig]:
    if len(paths) > 1 or config.precision not in (None, "float32"):
        raise InputError(
            "engine=ctranslate2 takes one checkpoint and no precision=; an export has its own: "
            "transformer export quantization=int8"
        )
    require_package("ctranslate2", "engine=ctranslate2", "export")
    folder = _export_folder(config, paths[0])
    device = find_device(config.device)
    model_device = device
    if run_directory.is_ctranslate2(paths[0]):
        if config.heads_off:
            raise InputError(f"heads_off= {needs_run(paths[0])}")
        model_device = torch.device("meta")  # CTranslate2 alone has the weights of an export
    translator, run = _load(config, paths, model_device, loaded)
    return replace(translator, engine=_engine(folder, device)), run


def needs_run(export: Path) -> str:
    """The end of the message about a key that an export for CTranslate2 alone cannot do."""
    return (
        f"needs the run that {export} was exported from; set checkpoint=RUN engine_folder={export}"
    )


def _export_folder(config: TranslatorConfig, checkpoint: Path) -> Path:
    """The folder that the user names, else the checkpoint if it is one, else that of the run."""
    folder = config.engine_folder or checkpoint
    if run_directory.is_ctranslate2(folder):
        return folder
    if config.engine_folder is None:
        if not checkpoint.exists():
            run_directory.find_checkpoint(checkpoint)  # raises InputError with a suggestion
        folder = run_directory.run_folder(folder) / "export"
    weights = folder.glob(f"ctranslate2*/{run_directory.ENGINE_WEIGHTS}")
    exports = sorted(file.parent for file in weights)
    if len(exports) == 1:
        return exports[0]
    advice = f"make one: transformer export checkpoint={checkpoint} format=ctranslate2"
    if exports:
        advice = f"choose one: engine_folder={' or '.join(map(str, exports))}"
    raise InputError(
        f"{folder} holds {len(exports) or 'no'} exports for engine=ctranslate2; {advice}"
    )


def _automatic_export(
    config: TranslatorConfig, paths: Sequence[Path], translator: Translator
) -> Path:
    """The verified export of the checkpoint, made if it is missing; InputError says why not."""
    require_package("ctranslate2", "CTranslate2", "export")
    search = translator.search
    model = translator.ensemble
    if not isinstance(model, Transformer) or run_directory.is_exported(paths[0]):
        raise InputError("CTranslate2 is for one checkpoint of a run")
    if translator.device.type != "cpu" or config.precision not in (None, "float32"):
        raise InputError("CTranslate2 is for float32 on a CPU; export has quantization=int8")
    if config.heads_off:
        raise InputError("heads_off= is of this call alone")
    if search.stopping == "exact" and search.beam_size > 1:
        raise InputError(
            "decoding.stopping=exact is not a search of CTranslate2; decoding.stopping=full is"
        )
    from transformer.interchange.ctranslate2 import check_search

    check_search(search, translator.tokenizer)
    run = run_directory.run_folder(paths[0])
    name = f"auto-{compute_fingerprint(model, translator.tokenizer)[:12]}"
    if (run / FILE).is_file():  # the export includes this shortlist
        name += f"-{file_digest(run / FILE).hex()[:12]}"
    folder = run / "export" / name
    if not folder.is_dir():
        log.warning("engine=auto: writing %s and comparing it on validation", folder)
        from transformer.interchange.export_formats import write_export
        from transformer.settings.commands import ExportConfig

        export = ExportConfig(str(paths[0]), trust=config.trust)
        stored, run_config = load_translator(export.translator, as_stored=True)
        if not names_text(run_config.data):
            raise InputError("the model was imported without text to compare an export on")
        verified = write_export(stored, run_config, export, folder)
        log.warning("engine=auto: %s", json.dumps(verified))
    return folder
