"""A package for Argos Translate 1.11 and LibreTranslate: one file that they install."""

import shutil
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformer.common.errors import raise_objections
from transformer.common.language_names import language_name
from transformer.data.text.parallel import Referenced
from transformer.data.tokenization.tags import Tags
from transformer.decoding.translator import Translator
from transformer.interchange import ctranslate2
from transformer.interchange.files import write_json
from transformer.interchange.verification import PLAIN, compare_texts
from transformer.settings.data import DataConfig
from transformer.settings.metrics import MetricsConfig

BEAM = 4
LENGTH_PENALTY = 0.2
"""The search of Argos; it divides the log-probability by the length to this power."""


def write_argos(translator: Translator, data: DataConfig, folder: Path, quantization: str) -> Path:
    """Write ``translate-SOURCE_TARGET-1_0.argosmodel``; InputError if no package can hold it."""
    config = translator.model.config
    tokenizer = translator.tokenizer
    length = ctranslate2.ENGINE_LENGTH
    required = {
        "tokenizer.joint=true": tokenizer.joint,
        "no tags before a source": tokenizer.tags == Tags(),
        f"model.max_length={length} for each side, or model.positions=sinusoidal": (
            config.positions != "learned"
            or min(config.source_positions, config.max_length) >= length
        ),
    }
    raise_objections(
        f"a package of Argos needs {name}; train such a model, or export format=ctranslate2"
        for name, holds in required.items()
        if not holds
    )
    source = data.source
    target = data.target
    name = f"translate-{source}_{target}-1_0"
    file = folder / f"{name}.argosmodel"
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9",
        "from_code": source,
        "from_name": language_name(source),
        "to_code": target,
        "to_name": language_name(target),
        "target_prefix": "",
    }
    with TemporaryDirectory(dir=folder) as temporary:
        inside = Path(temporary) / name
        (inside / "model").mkdir(parents=True)
        ctranslate2.write_ctranslate2(translator.model, tokenizer, inside / "model", quantization)
        subwords = tokenizer.to_state()["source"]
        (inside / "sentencepiece.model").write_bytes(bytes(subwords.numpy()))
        write_json(metadata, inside / "metadata.json")
        packed = shutil.make_archive(str(Path(temporary) / "packed"), "zip", temporary, name)
        shutil.move(packed, file)
    return file


def verify_argos(
    translator: Translator, file: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare a model with its package, which searches as Argos does (``compare_texts``)."""
    like_argos = {
        **PLAIN,
        "algorithm": "beam",
        "beam_size": BEAM,
        "stopping": "full",
        # The engine has no empty hypothesis, unless it is asked for.
        "min_length": 1,
        "length_penalty": LENGTH_PENALTY,
        "length_penalty_form": "average",
        # The limit of the engine.
        "max_length_ratio": 0.0,
        "max_length_offset": 256,
    }
    translate = partial(translate_as_argos, file)
    return compare_texts(translator, like_argos, translate, pairs, metrics)


def translate_as_argos(file: Path, texts: Sequence[str]) -> list[str]:
    """Translate with a package as Argos Translate does, one sentence a text."""
    import ctranslate2
    import sentencepiece

    with TemporaryDirectory() as temporary:
        with zipfile.ZipFile(file) as packed:
            packed.extractall(temporary)
        [inside] = Path(temporary).iterdir()
        cutter = sentencepiece.SentencePieceProcessor(
            model_file=str(inside / "sentencepiece.model")
        )
        engine = ctranslate2.Translator(str(inside / "model"))
        results = engine.translate_batch(
            [cutter.encode(text, out_type=str) for text in texts],
            beam_size=BEAM,
            length_penalty=LENGTH_PENALTY,
            replace_unknowns=True,
            max_batch_size=2048,
            batch_type="tokens",
        )
        decoded = [cutter.decode_pieces(result.hypotheses[0]) for result in results]
    return [text.replace("▁", " ").replace("_", " ").strip() for text in decoded]
