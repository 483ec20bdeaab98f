"""The formats of ``export``: their packages, writers and verification."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from transformer.checkpoint.run_directory import run_folder
from transformer.checkpoint.trust import require_trust
from transformer.common.errors import InputError, require_package
from transformer.common.files import given_path, written_whole
from transformer.data.corpora.evaluation_text import validation_pairs
from transformer.decoding.fingerprint import write_fingerprint
from transformer.decoding.search.shortlist import ENGINE_FILE, FILE
from transformer.decoding.translator import Translator
from transformer.interchange import ctranslate2, safetensors
from transformer.interchange.architectures.huggingface import verify_huggingface, write_huggingface
from transformer.interchange.argos import verify_argos, write_argos
from transformer.interchange.ctranslate2 import vocabulary_map, write_ctranslate2
from transformer.interchange.onnx.folder import verify_onnx, write_onnx
from transformer.interchange.onnx.web_page import MODEL, find_runtime, write_web
from transformer.interchange.readme import Published, model_card, read_report
from transformer.interchange.verification import verify_ctranslate2, verify_int8
from transformer.settings.commands import ExportConfig
from transformer.settings.data import DataConfig
from transformer.settings.metrics import METRICS
from transformer.settings.run import RunConfig

Values = dict[str, Any]


class Format(NamedTuple):
    """A format of ``export``.

    Attributes:
        write: Writes a model into a new folder; returns what its verification found.
        package, extra: A package that it needs, and the extra of this project that has it.
        quantized: The default folder has the name of ``quantization``, too.
        any_tokens: It keeps any tokens; else only those that SentencePiece cuts.
    """

    write: Callable[[Translator, RunConfig, Path, ExportConfig], Values]
    package: str | None = None
    extra: str = ""
    quantized: bool = False
    any_tokens: bool = False


def chosen_format(config: ExportConfig) -> Format:
    """The format of that name; raises InputError for an unknown name, or a missing package."""
    if config.format not in FORMATS:
        raise InputError(f"format={config.format} is unknown; choose {' or '.join(FORMATS)}")
    chosen = FORMATS[config.format]
    if chosen.package is not None:
        require_package(chosen.package, f"format={config.format}", chosen.extra)
    return chosen


def folder_name(config: ExportConfig) -> str:
    """The name of an export in RUN/export."""
    quantized = chosen_format(config).quantized and config.quantization != "float32"
    return f"{config.format}-{config.quantization}" if quantized else config.format


def write_export(
    translator: Translator, run: RunConfig, config: ExportConfig, folder: Path
) -> Values:
    """Write a new folder, unless the verification fails; returns what that found."""
    chosen = chosen_format(config)
    cutters = {"bytes", "char", "huggingface", "words"} & {*translator.tokenizer.config.algorithms}
    if cutters and not chosen.any_tokens:
        raise InputError(
            f"format={config.format} cuts text with SentencePiece, not as "
            f"tokenizer={min(cutters)} does; choose format=safetensors"
        )
    with written_whole(folder) as part:
        part.mkdir(parents=True)
        return chosen.write(translator, run, part, config)


def _verified(
    verify: Callable[..., Values],
    translator: Translator,
    exported: Path,
    run: RunConfig,
    config: ExportConfig,
) -> Values:
    """Compare a model with its export on validation; raises InputError if that is much worse."""
    require_trust(run, config.trust, config.checkpoint)
    pairs = validation_pairs(run.data, config.sentences)
    metrics = run.metrics
    verified = verify(translator, exported, pairs, metrics)
    [(name, theirs)] = ((n, value) for n, value in verified.items() if n.endswith("_exported"))
    lost = verified[name.removesuffix("_exported")] - theirs
    lost = lost if metrics.better(metrics.choose) == "higher" else -lost
    if round(lost, 2) > config.max_bleu_loss:
        raise InputError(
            f"the exported model loses {lost:.2f} {METRICS[metrics.choose].label} on validation, "
            f"more than max_bleu_loss={config.max_bleu_loss:g}; nothing was written"
        )
    return verified


def _ctranslate2(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Values:
    model, tokenizer = translator.model, translator.tokenizer
    write_ctranslate2(model, tokenizer, folder, config.quantization)
    write_fingerprint(model, tokenizer, folder)
    shortlist = run_folder(given_path(config.checkpoint)) / FILE
    if shortlist.is_file() and not tokenizer.tags.sentences:  # whose separator it cannot name
        (folder / ENGINE_FILE).write_text(vocabulary_map(shortlist, tokenizer), encoding="utf-8")
    settings = folder / ctranslate2.SETTINGS
    safetensors.write_settings(tokenizer, run, settings, translator.limits.usual)
    _write_card(translator, run, folder, config, "ctranslate2")
    return _verified(verify_ctranslate2, translator, folder, run, config)


def _write_card(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig, library: str
) -> None:
    report = read_report(given_path(config.checkpoint))
    about = Published(config.license, config.repo, config.quantization)
    text = model_card(translator.tokenizer, run, report, library, about)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _safetensors(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Values:
    model, tokenizer = translator.model, translator.tokenizer
    quantization = config.quantization
    if quantization not in ("float32", "int8"):
        raise InputError(
            f"quantization={quantization} is not for safetensors; choose float32 or int8"
        )
    usual = translator.limits.usual
    safetensors.write_safetensors(model, tokenizer, run, folder, quantization, usual)
    _write_card(translator, run, folder, config, "transformer")
    if quantization == "int8":
        return _verified(verify_int8, translator, folder, run, config)
    return safetensors.verify_safetensors(translator.model, translator.tokenizer, folder)


def _huggingface(
    translator: Translator, run: RunConfig, folder: Path, config: ExportConfig
) -> Values:
    write_huggingface(translator, run, folder)
    _write_card(translator, run, folder, config, "transformers")
    return _verified(verify_huggingface, translator, folder, run, config)


def _argos(translator: Translator, run: RunConfig, folder: Path, config: ExportConfig) -> Values:
    file = write_argos(translator, run.data, folder, config.quantization)
    return _verified(verify_argos, translator, file, run, config)


def _onnx(translator: Translator, run: RunConfig, folder: Path, config: ExportConfig) -> Values:
    write_onnx(translator, folder, config.quantization)
    _write_card(translator, run, folder, config, "transformers.js")
    return _verified(verify_onnx, translator, folder, run, config)


def _web(translator: Translator, run: RunConfig, folder: Path, config: ExportConfig) -> Values:
    # The cache of this call: a foreign checkpoint may name any folder.
    runtime = find_runtime(config.onnxruntime_web, given_path(DataConfig().cache))
    write_web(translator, run.data, folder, config.quantization, runtime)
    return _verified(verify_onnx, translator, folder / MODEL, run, config)


FORMATS = {
    "argos": Format(_argos, "ctranslate2", "export"),
    "ctranslate2": Format(_ctranslate2, "ctranslate2", "export", quantized=True),
    "huggingface": Format(_huggingface, "transformers", "huggingface", any_tokens=True),
    "onnx": Format(_onnx, "onnxruntime", "onnx", quantized=True),
    "safetensors": Format(_safetensors, "safetensors", "export", quantized=True, any_tokens=True),
    "web": Format(_web, "onnxruntime", "onnx", quantized=True),
}
