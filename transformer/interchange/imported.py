"""A model of another framework as a run of ours: its folder is read, and a checkpoint written."""

import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer.common.errors import InputError
from transformer.common.schema import typed, typed_value
from transformer.data.tokenization.tokenizer import PAD, Tokenizer
from transformer.interchange.m2m import vocabulary as m2m
from transformer.interchange.marian.npz import DECODER, read_npz
from transformer.interchange.marian.vocabulary import (
    ImportedTokenizer,
    import_tokenizer,
    read_json,
)
from transformer.interchange.marian.weights import MarianConfig, import_weights, read_config
from transformer.interchange.safetensors import read_safetensors
from transformer.model.checkpoint.checkpoint import PORTABLE, WEIGHTS_PREFIX, portable_part
from transformer.model.config import ModelConfig

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


class Imported(NamedTuple):
    """What a folder holds.

    Attributes:
        model: Keys under ``model.``.
        tokenizer: That of the model.
        weights: Those of our model.
        languages: Source and target, if the folder names them.
        decoding: Keys under ``decoding.`` of its own search.
    """

    model: dict[str, Any]
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    languages: tuple[str | None, str | None]
    decoding: dict[str, Any]


def read_marian(folder: Path) -> Imported:
    """A Marian folder of Hugging Face, or a Pegasus one with the tokenizer of Marian.

    Raises:
        InputError: A part is missing, damaged, or cannot be expressed here.
    """
    config, languages = _config(folder), _languages(folder, "source_lang", "target_lang")
    return _marian(config, read_weights(folder), import_tokenizer(folder), languages)


def _config(folder: Path) -> MarianConfig:
    generation = folder / "generation_config.json"
    values = _mapping(generation) if generation.is_file() else {}
    return read_config({**_mapping(folder / "config.json"), **values})


def read_m2m(folder: Path) -> Imported:
    """An M2M-100 or NLLB folder of Hugging Face; errors are those of ``read_marian``."""
    values = _mapping(folder / "config.json")
    size = typed_value(values.get("vocab_size"), int, "config.json.vocab_size")
    tokenizer = m2m.import_tokenizer(folder, size)
    languages = _languages(folder, "src_lang", "tgt_lang")
    return _marian(_config(folder), read_weights(folder), tokenizer, languages)


def read_marian_npz(folder: Path) -> Imported:
    """A folder of Marian itself; errors are those of ``read_marian``."""
    return _marian(*read_npz(folder), (None, None))


def _marian(
    config: MarianConfig,
    weights: Mapping[str, Tensor],
    vocabulary: ImportedTokenizer,
    languages: tuple[str | None, str | None],
) -> Imported:
    ours = import_weights(weights, config, vocabulary.source, vocabulary.target)
    settings = config.settings() | {"output_bias": "projection.bias" in ours}
    return Imported(settings, vocabulary.tokenizer, ours, languages, _decoding(config))


def _decoding(config: MarianConfig) -> dict[str, Any]:
    """There a score is the mean of the log-probabilities of the tokens."""
    return {
        "beam_size": config.num_beams,
        "length_penalty": config.length_penalty,
        "length_penalty_form": "average",
    }


def _languages(folder: Path, *keys: str) -> tuple[str | None, str | None]:
    """Source and target that ``tokenizer_config.json`` names."""
    own = folder / "tokenizer_config.json"
    names = _mapping(own) if own.is_file() else {}
    source, target = (_code(names.get(key)) for key in keys)
    return source, target


def _code(name: Any) -> str | None:
    """The code of a language, if it is one."""
    return name if isinstance(name, str) and re.fullmatch(r"[\w-]{1,20}", name) else None


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, from safetensors or from a file of torch that runs no code.

    Raises:
        InputError: There is none, or it cannot be read.
    """
    files = [folder / name for name in _WEIGHTS if (folder / name).is_file()]
    if not files:
        raise InputError(f"{folder} holds neither {' nor '.join(_WEIGHTS)}")
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    damage = (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError)
    try:
        if files[0].suffix == ".safetensors":
            return load_file(files[0])
        # Files of torch before 1.6 are no archives, and cannot be mapped into the memory.
        mapped = zipfile.is_zipfile(files[0])
        found = torch.load(files[0], map_location="cpu", weights_only=True, mmap=mapped)
    except damage as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{files[0]} cannot be read: {reason}") from error
    if not isinstance(found, dict) or not all(isinstance(one, Tensor) for one in found.values()):
        raise InputError(f"{files[0]} holds more than tensors")
    return found


def _mapping(file: Path) -> Mapping[str, Any]:
    values = read_json(file)
    if not isinstance(values, dict):
        raise InputError(f"{file} is no JSON object")
    return values


def imported_payload(found: Imported, config: dict[str, Any]) -> dict[str, Any]:
    """The content of a checkpoint.

    Args:
        found: The model.
        config: The resolved config of a training run.
    """
    tokenizer = found.tokenizer
    sizes = {
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
        "pad": PAD,
    }
    model = typed(ModelConfig, {**config["model"], **sizes}, "model")
    weights = {f"{WEIGHTS_PREFIX}{name}": weight for name, weight in found.weights.items()}
    return {
        PORTABLE: portable_part(model, tokenizer.to_state(), config),
        "state_dict": weights,
    }


def is_own(folder: Path) -> bool:
    """Whether a folder is of our own ``export format=safetensors``."""
    file = folder / "config.json"
    return file.is_file() and "tokenizer" in _mapping(file)


def export_payload(folder: Path) -> dict[str, Any]:
    """The content of the checkpoint that ``export format=safetensors`` wrote as a folder."""
    found = read_safetensors(folder)
    weights = {f"{WEIGHTS_PREFIX}{name}": one for name, one in found.model.state_dict().items()}
    portable = portable_part(found.model.config, found.tokenizer, found.config)
    return {PORTABLE: portable, "state_dict": weights}


FORMATS: dict[str, Callable[[Path], Imported]] = {
    "marian": read_marian,
    "pegasus": read_marian,
    "m2m_100": read_m2m,
}
"""How each ``model_type`` of a ``config.json`` is read."""


def read_folder(folder: Path) -> Imported:
    """The model of a folder: of Marian, or by the ``model_type`` of its ``config.json``.

    Raises:
        InputError: It is none that can be imported.
    """
    if (folder / DECODER).is_file() and not (folder / "config.json").is_file():
        return read_marian_npz(folder)
    kind = _mapping(folder / "config.json").get("model_type")
    if kind not in FORMATS:
        raise InputError(
            f"{folder} has model_type {str(kind)[:40]!r}; import takes {' or '.join(FORMATS)}"
        )
    return FORMATS[str(kind)](folder)
