"""The formats of ``export``: their packages, writers and verification."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from transformer.checkpoint.run_directory import run_folder
from transformer.checkpoint.trust import require_trust
from transformer.common.errors import InputError
from transformer.common.files import given_path, new_folder
from transformer.common.packages import require_package
from transformer.data.corpora.evaluation_text import validation_pairs
from transformer.data.corpora.resolve import names_text
from transformer.decoding.fingerprint import write_fingerprint
from transformer.decoding.search.shortlist import ENGINE_FILE, FILE
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.huggingface import verify_huggingface, write_huggingface
from transformer.interchange.argos import verify_argos, write_argos
from transformer.interchange.ctranslate2 import (
    SETTINGS,
    verify_ctranslate2,
    vocabulary_map,
    write_ctranslate2,
)
from transformer.interchange.onnx import verify_onnx, write_onnx
from transformer.interchange.readme import Published, model_card, read_report
from transformer.interchange.safetensors import (
    verify_int8,
    verify_safetensors,
    write_safetensors,
    write_settings,
)
from transformer.interchange.web_page import MODEL, find_runtime, write_web
from transformer.settings.commands import ExportConfig
from transformer.settings.data import DataConfig
from transformer.settings.metrics import METRICS
from transformer.settings.run import RunConfig

log = logging.getLogger(__name__)

Verification = dict[str, Any]
"""What the verification of an export measured."""


class Format(NamedTuple):
    """A format of ``export``.

    Attributes:
        write: Writes a model into a new folder, and verifies it.
        package, extra: A package that it needs, and the extra of this project that has it.
        quantized: The default folder has the name of ``quantization``, too.
        any_tokens: It keeps any tokens; else only those that SentencePiece cuts.
        front_ends: Values of ``model.front_end`` that it has beside null; None: all.
    """

    write: Callable[[Translator, RunConfig, Path, ExportConfig], Verification]
    package: str | None = None
    extra: str = ""
    quantized: bool = False
    any_tokens: bool = False
    front_ends: tuple[str, ...] | None = ()


def chosen_format(config: ExportConfig) -> Format:
    """The format of that name; raises InputError for an unknown name, or a missing package."""
    if config.format not in FORMATS:
        raise InputError(f"format={config.format} is unknown; choose {' or '.join(FORMATS)}")
    export_format = FORMATS[config.format]
    if export_format.package is not None:
        require_package(export_format.package, f"format={config.format}", export_format.extra)
    return export_format


def folder_name(config: ExportConfig) -> str:
    """The name of an export in RUN/export."""
    quantized = chosen_format(config).quantized and config.quantization != "float32"
    return f"{config.format}-{config.quantization}" if quantized else config.format


def write_export(
    translator: Translator, run: RunConfig, config: ExportConfig, folder: Path
) -> Verification:
    """Write a new folder, unless the verification fails; returns what that measured."""
    export_format = chosen_format(config)
    _check_front_end(translator, config.format)
    algorithms = set(translator.tokenizer.config.algorithms)
    unsupported = algorithms & {"bytes", "char", "huggingface", "words"}
    if unsupported and not export_format.any_tokens:
        raise InputError(
            f"format={config.format} cuts text with SentencePiece, not as "
            f"tokenizer={min(unsupported)} does; choose format=safetensors"
        )
    with new_folder(folder) as part:
        return export_format.write(translator, run, part, config)


def _check_front_end(translator: Translator, name: str) -> None:
    """Raise InputError if the format has no model that reads such files."""
    front_end = translator.model.config.front_end

    def has(known: Format) -> bool:
        return front_end is None or known.front_ends is None or front_end in known.front_ends

    if not has(FORMATS[name]):
        choices = " or ".join(other for other, known in FORMATS.items() if has(known))
        raise InputError(
            f"format={name} has no model whose sources are files "
            f"({translator.tokenizer.config.algorithms[0]}) with model.front_end={front_end}; "
            f"choose format={choices}"
        )


def _ctranslate2(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Verification:
    tokenizer = translator.tokenizer
    write_ctranslate2(translator.model, tokenizer, folder, config.quantization)
    write_fingerprint(translator.model, tokenizer, folder)
    shortlist = run_folder(given_path(config.checkpoint)) / FILE
    # A shortlist of the engine cannot name the separator of documents.
    if shortlist.is_file() and not tokenizer.tags.sentences:
        (folder / ENGINE_FILE).write_text(vocabulary_map(shortlist, tokenizer), encoding="utf-8")
    write_settings(tokenizer, run, folder / SETTINGS, translator.limits.usual)
    _write_card(translator, run, folder, config, "ctranslate2")
    return _verified(verify_ctranslate2, translator, folder, run, config)


def _safetensors(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Verification:
    model = translator.model
    tokenizer = translator.tokenizer
    quantization = config.quantization
    if quantization not in ("float32", "int8"):
        raise InputError(
            f"quantization={quantization} is not for safetensors; choose float32 or int8"
        )
    write_safetensors(model, tokenizer, run, folder, quantization, translator.limits.usual)
    _write_card(translator, run, folder, config, "transformer")
    if quantization == "int8":
        return _verified(verify_int8, translator, folder, run, config)
    return verify_safetensors(model, tokenizer, folder)


def _huggingface(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Verification:
    write_huggingface(translator, run, folder)
    _write_card(translator, run, folder, config, "transformers")
    return _verified(verify_huggingface, translator, folder, run, config)


def _argos(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Verification:
    file = write_argos(translator, run.data, folder, config.quantization)
    return _verified(verify_argos, translator, file, run, config)


def _onnx(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Verification:
    write_onnx(translator, folder, config.quantization)
    _write_card(translator, run, folder, config, "transformers.js")
    return _verified(verify_onnx, translator, folder, run, config)


def _web(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Verification:
    # The cache of this call: a foreign checkpoint may name any folder.
    runtime = find_runtime(config.onnxruntime_web, given_path(DataConfig().cache))
    write_web(translator, run.data, folder, config.quantization, runtime)
    return _verified(verify_onnx, translator, folder / MODEL, run, config)


def _write_card(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig, library: str
) -> None:
    report = read_report(given_path(config.checkpoint))
    published = Published(config.license, config.repo, config.quantization)
    text = model_card(translator.tokenizer, run, report, library, published)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _verified(
    verify: Callable[..., Verification],
    translator: Translator,
    exported: Path,
    run: RunConfig,
    config: ExportConfig,
) -> Verification:
    """Compare a model with its export on validation; raises InputError if that is much worse.

    A model that was imported without text is not compared.
    """
    if not names_text(run.data):
        log.warning(
            "%s has no validation text to compare translations of the model and of the export on; "
            "transformer import … validation=FILE.tsv names one",
            config.checkpoint,
        )
        return {"sentences": 0}
    require_trust(run, config.trust, config.checkpoint)
    metrics = run.metrics
    pairs = validation_pairs(run.data, config.sentences)
    log.warning(
        "comparing translations of the model and of the export: %s validation sentences",
        f"{len(pairs):,}",
    )
    verified = verify(translator, exported, pairs, metrics)
    [name] = [name for name in verified if name.endswith("_exported")]
    lost = verified[name.removesuffix("_exported")] - verified[name]
    if metrics.better(metrics.choose) == "lower":
        lost = -lost
    if round(lost, 2) > config.max_bleu_loss:
        raise InputError(
            f"the exported model loses {lost:.2f} {METRICS[metrics.choose].label} on validation, "
            f"more than max_bleu_loss={config.max_bleu_loss:g}; nothing was written"
        )
    return verified


FORMATS = {
    "argos": Format(_argos, "ctranslate2", "export"),
    "ctranslate2": Format(_ctranslate2, "ctranslate2", "export", quantized=True),
    "huggingface": Format(
        _huggingface, "transformers", "huggingface", any_tokens=True, front_ends=("whisper",)
    ),
    "onnx": Format(_onnx, "onnxruntime", "onnx", quantized=True),
    "safetensors": Format(
        _safetensors, "safetensors", "export", quantized=True, any_tokens=True, front_ends=None
    ),
    "web": Format(_web, "onnxruntime", "onnx", quantized=True),
}
