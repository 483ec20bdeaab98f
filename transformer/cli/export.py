"""``export``: the model for another engine, written only if it says the same."""

import json
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from transformer.cli.compose import compose_config
from transformer.cli.exit import exit_code_of
from transformer.cli.resume import run_folder_of
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.data.corpus import Pair


def main(arguments: Sequence[str]) -> int:
    """Export; returns the exit code."""
    return exit_code_of(lambda: _export(compose_config("export", arguments), arguments))


def _export(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.load import load_translator
    from transformer.data.cache import written_whole
    from transformer.export.ctranslate2 import refuse_inexpressible, write_ctranslate2
    from transformer.export.verification import verify_ctranslate2

    _require_ctranslate2()
    quantization = _quantization(config)
    translator, run = load_translator(config, arguments)
    refuse_inexpressible(translator.model.config)
    pairs = _validation(run, config.sentences)
    name = "ctranslate2" if quantization == "float32" else f"ctranslate2-{quantization}"
    folder = Path(config.output or run_folder_of(Path(config.checkpoint)) / "export" / name)
    if folder.exists():
        raise InputError(f"{folder} is there already; remove it, or choose another with output=")
    with written_whole(folder) as part:
        part.mkdir(parents=True)
        write_ctranslate2(translator.model, translator.tokenizer, part, quantization)
        verified = verify_ctranslate2(translator, part, pairs, quantization)
        print(json.dumps(verified.to_json()), file=sys.stderr)
        if verified.loss > config.most_bleu_lost:
            raise InputError(
                f"the exported model loses {verified.loss:.2f} BLEU on validation, more than "
                f"most_bleu_lost={config.most_bleu_lost}; nothing was written"
            )
    print(folder)


def _require_ctranslate2() -> None:
    try:
        import ctranslate2  # noqa: F401
    except ImportError as error:
        raise InputError("export needs CTranslate2: pip install 'transformer[export]'") from error


def _quantization(config: DictConfig) -> str:
    from transformer.export.ctranslate2 import QUANTIZATIONS

    if config.format != "ctranslate2":
        raise InputError(f"format={config.format} is unknown; choose ctranslate2")
    if config.quantization not in QUANTIZATIONS:
        raise InputError(
            f"quantization={config.quantization} is unknown; choose {' or '.join(QUANTIZATIONS)}"
        )
    return str(config.quantization)


def _validation(run: dict[str, Any], sentences: int) -> "list[Pair]":
    from transformer.data.config import DataConfig
    from transformer.data.splits import find_splits

    if sentences < 1:
        raise InputError(f"sentences={sentences} must be at least 1")
    return list(islice(find_splits(DataConfig(**run["data"]))["validation"], sentences))
