"""The formats of ``export``: package, folder name, and how each is written."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import DictConfig

from transformer.common.errors import InputError

if TYPE_CHECKING:
    from transformer.data.text.parallel import Referenced
    from transformer.decoding.translation.translator import Translator
    from transformer.evaluation.metrics import MetricsConfig

Run = dict[str, Any]


class Format(NamedTuple):
    """One format."""

    package: str
    """Required package."""
    extra: str
    """The extra that has it."""
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


def _validation(run: Run, config: DictConfig) -> "tuple[list[Referenced], MetricsConfig]":
    """The text that an export is compared on, and how it is scored."""
    from transformer.common.schema import typed, typed_value
    from transformer.data.config import DataConfig
    from transformer.data.corpora.evaluation_text import validation_pairs
    from transformer.data.corpora.trust import require_trust
    from transformer.evaluation.metrics import MetricsConfig

    sentences = typed_value(config.sentences, int | None, "sentences")
    trusted = typed_value(config.get("trust", False), bool, "trust")
    require_trust(run, trusted, config.checkpoint)
    pairs = validation_pairs(typed(DataConfig, run["data"], "data"), sentences)
    return pairs, typed(MetricsConfig, run["metrics"], "metrics")


def _checked(
    verified: dict[str, Any], metrics: "MetricsConfig", config: DictConfig
) -> dict[str, Any]:
    """Refuse an export that loses ``max_bleu_loss`` or more in the metric that chose the model."""
    from transformer.common.schema import typed_value
    from transformer.evaluation.metrics import METRICS

    limit = typed_value(config.max_bleu_loss, float, "max_bleu_loss")
    [ours] = (value for name, value in verified.items() if f"{name}_exported" in verified)
    [theirs] = (value for name, value in verified.items() if name.endswith("_exported"))
    lost = ours - theirs if metrics.better(metrics.choose) == "higher" else theirs - ours
    if round(lost, 2) > limit:
        raise InputError(
            f"the exported model loses {lost:.2f} {METRICS[metrics.choose].label} on validation, "
            f"more than max_bleu_loss={limit:g}; nothing was written"
        )
    return verified


def _write_ctranslate2(
    translator: "Translator", run: Run, folder: Path, config: DictConfig
) -> dict[str, Any]:
    from transformer.decoding.batched_search import max_subwords
    from transformer.decoding.translation.fingerprint import write_fingerprint
    from transformer.interchange.ctranslate2 import SETTINGS, write_ctranslate2
    from transformer.interchange.expressible import check_expressible
    from transformer.interchange.readme.ctranslate2 import readme
    from transformer.interchange.safetensors import write_settings
    from transformer.interchange.verification import verify_ctranslate2

    check_expressible(translator.model.config, "CTranslate2")
    pairs, metrics = _validation(run, config)
    write_ctranslate2(translator.model, translator.tokenizer, folder, config.quantization)
    write_fingerprint(translator.model, translator.tokenizer, folder)
    write_settings(translator.model.config, translator.tokenizer, run, folder / SETTINGS)
    text = readme(translator.tokenizer, translator.search, max_subwords(translator.model))
    (folder / "README.md").write_text(text, encoding="utf-8")
    return _checked(verify_ctranslate2(translator, folder, pairs, metrics), metrics, config)


def _write_card(
    translator: "Translator", run: Run, folder: Path, config: DictConfig, library: str
) -> None:
    from transformer.common.files import given_path
    from transformer.interchange.readme.model_card import model_card, read_tests

    tests = read_tests(given_path(str(config.checkpoint)))
    text = model_card(translator.tokenizer, run, tests, library, dict(config))
    (folder / "README.md").write_text(text, encoding="utf-8")


def _write_safetensors(
    translator: "Translator", run: Run, folder: Path, config: DictConfig
) -> dict[str, Any]:
    from transformer.interchange.safetensors import verify_safetensors, write_safetensors

    write_safetensors(translator.model, translator.tokenizer, run, folder)
    _write_card(translator, run, folder, config, "transformer")
    return verify_safetensors(translator.model, translator.tokenizer, folder)


def _write_huggingface(
    translator: "Translator", run: Run, folder: Path, config: DictConfig
) -> dict[str, Any]:
    from transformer.interchange.huggingface import (
        check_huggingface,
        verify_huggingface,
        write_huggingface,
    )

    check_huggingface(translator.model.config)
    pairs, metrics = _validation(run, config)
    write_huggingface(translator, run, folder)
    _write_card(translator, run, folder, config, "transformers")
    return _checked(verify_huggingface(translator, folder, pairs, metrics), metrics, config)


def _write_argos(
    translator: "Translator", run: Run, folder: Path, config: DictConfig
) -> dict[str, Any]:
    from transformer.interchange.argos import check_argos, verify_argos, write_argos

    check_argos(translator)
    pairs, metrics = _validation(run, config)
    file = write_argos(translator, run["data"], folder, config.quantization)
    return _checked(verify_argos(translator, file, pairs, metrics), metrics, config)


FORMATS = {
    "argos": Format("ctranslate2", "export", lambda config: "argos", _write_argos),
    "ctranslate2": Format("ctranslate2", "export", _ctranslate2_name, _write_ctranslate2),
    "huggingface": Format(
        "transformers", "huggingface", lambda config: "huggingface", _write_huggingface
    ),
    "safetensors": Format(
        "safetensors", "export", lambda config: "safetensors", _write_safetensors
    ),
}
