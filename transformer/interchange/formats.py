"""The formats of ``export``: package, folder name, and how each is written."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import DictConfig

from transformer.common.errors import InputError

if TYPE_CHECKING:
    from transformer.decoding.translation.translator import Translator

Run = dict[str, Any]


class Format(NamedTuple):
    """One format."""

    package: str
    """Required package of the extra ``export``."""
    folder_name: Callable[[DictConfig], str]
    """Name in RUN/export; raises InputError if a key is wrong."""
    write: Callable[["Translator", Run, Path, DictConfig], dict[str, Any]]
    """Writes a translator and the config of its run into a new folder; returns the result of the
    verification, and raises InputError if it fails."""


def _ctranslate2_name(config: DictConfig) -> str:
    from transformer.interchange.ctranslate2 import QUANTIZATIONS

    quantization = config.quantization
    if quantization not in QUANTIZATIONS:
        raise InputError(
            f"quantization={quantization} is unknown; choose {' or '.join(QUANTIZATIONS)}"
        )
    return "ctranslate2" if quantization == "float32" else f"ctranslate2-{quantization}"


def _write_ctranslate2(
    translator: "Translator", run: Run, folder: Path, config: DictConfig
) -> dict[str, Any]:
    from transformer.common.schema import typed, typed_value
    from transformer.data.config import DataConfig
    from transformer.data.corpora.evaluation_text import validation_pairs
    from transformer.data.corpora.trust import require_trust
    from transformer.decoding.batched_search import max_subwords
    from transformer.decoding.translation.fingerprint import write_fingerprint
    from transformer.evaluation.metrics import MetricsConfig
    from transformer.interchange.ctranslate2 import SETTINGS, check_expressible, write_ctranslate2
    from transformer.interchange.ctranslate2_readme import readme
    from transformer.interchange.safetensors import write_settings
    from transformer.interchange.verification import verify_ctranslate2

    limit = typed_value(config.max_bleu_loss, float, "max_bleu_loss")
    sentences = typed_value(config.sentences, int | None, "sentences")
    check_expressible(translator.model.config)
    trusted = typed_value(config.get("trust", False), bool, "trust")
    require_trust(run["data"], trusted, config.checkpoint)
    pairs = validation_pairs(typed(DataConfig, run["data"], "data"), sentences)
    write_ctranslate2(translator.model, translator.tokenizer, folder, config.quantization)
    write_fingerprint(translator.model, translator.tokenizer, folder)
    write_settings(translator.model.config, translator.tokenizer, run, folder / SETTINGS)
    text = readme(translator.tokenizer, translator.search, max_subwords(translator.model))
    (folder / "README.md").write_text(text, encoding="utf-8")
    metrics = typed(MetricsConfig, run["metrics"], "metrics")
    verified = verify_ctranslate2(translator, folder, pairs, metrics)
    if verified.loss > limit:
        raise InputError(
            f"the exported model loses {verified.loss:.2f} BLEU on validation, more than "
            f"max_bleu_loss={limit:g}; nothing was written"
        )
    return verified.to_json()


def _write_safetensors(
    translator: "Translator", run: Run, folder: Path, config: DictConfig
) -> dict[str, Any]:
    from transformer.interchange.safetensors import verify_safetensors, write_safetensors

    write_safetensors(translator.model, translator.tokenizer, run, folder)
    return verify_safetensors(translator.model, translator.tokenizer, folder)


def _write_huggingface(
    translator: "Translator", run: Run, folder: Path, config: DictConfig
) -> dict[str, Any]:
    from transformer.common.schema import typed, typed_value
    from transformer.data.config import DataConfig
    from transformer.data.corpora.evaluation_text import validation_pairs
    from transformer.data.corpora.trust import require_trust
    from transformer.evaluation.metrics import MetricsConfig
    from transformer.interchange.huggingface import verify_huggingface, write_huggingface

    limit = typed_value(config.max_bleu_loss, float, "max_bleu_loss")
    sentences = typed_value(config.sentences, int | None, "sentences")
    write_huggingface(translator, run, folder)
    trusted = typed_value(config.get("trust", False), bool, "trust")
    require_trust(run["data"], trusted, config.checkpoint)
    pairs = validation_pairs(typed(DataConfig, run["data"], "data"), sentences)
    metrics = typed(MetricsConfig, run["metrics"], "metrics")
    verified = verify_huggingface(translator, folder, pairs, metrics)
    if (lost := verified["bleu"] - verified["bleu_exported"]) > limit:
        raise InputError(
            f"the exported model loses {lost:.2f} BLEU on validation, more than "
            f"max_bleu_loss={limit:g}; nothing was written"
        )
    return verified


FORMATS = {
    "ctranslate2": Format("ctranslate2", _ctranslate2_name, _write_ctranslate2),
    "huggingface": Format("transformers", lambda config: "huggingface", _write_huggingface),
    "safetensors": Format("safetensors", lambda config: "safetensors", _write_safetensors),
}
