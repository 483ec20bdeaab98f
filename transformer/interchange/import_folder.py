"""A model of another framework as a run of ours: its folder is read, and a checkpoint written."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import typed, typed_value
from transformer.data.tokenization.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer.interchange.families.family import Kind, read_config
from transformer.interchange.families.npz import DECODER, read_npz
from transformer.interchange.families.subwords import ImportedTokenizer
from transformer.interchange.families.weight_names import import_weights
from transformer.interchange.files import read_mapping, readable
from transformer.interchange.safetensors import read_safetensors
from transformer.model.checkpoint.checkpoint import PORTABLE, WEIGHTS_PREFIX, portable_part
from transformer.model.config import ModelConfig


class Imported(NamedTuple):
    """The content of a folder.

    Attributes:
        model: Keys under ``model.``.
        languages: Source and target, if the folder names them.
        decoding: Keys under ``decoding.`` of its own search.
    """

    model: dict[str, Any]
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    languages: tuple[str | None, ...]
    decoding: dict[str, Any]


def read_folder(folder: Path) -> Imported:
    """The model of a folder of Marian itself, or of transformers.

    Raises InputError if a part is missing or damaged, or the model cannot be expressed.
    """
    languages: tuple[str | None, ...] = (None, None)
    if (folder / DECODER).is_file() and not (folder / "config.json").is_file():
        config, weights, vocabulary = read_npz(folder)
    else:
        values = read_mapping(folder / "config.json")
        typed_value(values.get("model_type"), Kind, "config.json.model_type")
        values |= read_mapping(folder / "generation_config.json", optional=True)
        config = read_config(values)
        weights = read_weights(folder)
        family = config.family
        vocabulary = family.import_tokenizer(folder, values.get("vocab_size"))
        _check_symbols(values, vocabulary, family.decoder_start or BOS)
        names = read_mapping(folder / "tokenizer_config.json", optional=True)
        languages = tuple(_code(names.get(key)) for key in family.languages)
    ours = import_weights(weights, config, vocabulary.source, vocabulary.target)
    if not all(weight.isfinite().all() for weight in ours.values()):
        raise InputError(f"{folder}: its weights hold NaN or infinity; use another model")
    settings = config.settings() | {"output_bias": "projection.bias" in ours}
    decoding = {
        "beam_size": config.num_beams,
        "length_penalty": config.length_penalty,
        # There a score is the mean of the log-probabilities of the tokens.
        "length_penalty_form": "average",
    }
    return Imported(settings, vocabulary.tokenizer, ours, languages, decoding)


def _check_symbols(values: Mapping[str, Any], vocabulary: ImportedTokenizer, start: int) -> None:
    """Raise InputError if a config has other control symbols than the vocabulary."""
    source, target = vocabulary.source.rows, vocabulary.target.rows
    known = {"pad": source[PAD], "eos": target[EOS], "decoder_start": target[start]}
    raise_objections(
        f"{key}_token_id={str(given)[:20]} in config.json or generation_config.json must be {own}, "
        "as in the vocabulary"
        for key, own in known.items()
        if (given := values.get(f"{key}_token_id")) not in (None, own, [own])
    )


def _code(name: Any) -> str | None:
    """The code of a language, if it is one."""
    return name if isinstance(name, str) and re.fullmatch(r"[\w-]{1,20}", name) else None


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, from safetensors or from a file of torch that runs no code.

    Raises InputError if there is none, or it cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if (file := folder / "model.safetensors").is_file():
        with readable(file, SafetensorError):
            return load_file(file)
    # Files of torch before 1.6 are no archives, and cannot be mapped into the memory.
    mapped = zipfile.is_zipfile(file := folder / "pytorch_model.bin")
    with readable(file, pickle.UnpicklingError), warnings.catch_warnings():
        # Before it refuses a pickle, torch warns of its protocol.
        warnings.simplefilter("ignore", UserWarning)
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
        if not all(isinstance(one, Tensor) for one in found.values()):
            raise ValueError("it holds more than tensors")
        return dict(found)


def imported_payload(found: Imported, config: dict[str, Any]) -> dict[str, Any]:
    """The content of a checkpoint, with the resolved config of a training run."""
    sizes = {
        "source_vocab_size": found.tokenizer.source_vocab_size,
        "target_vocab_size": found.tokenizer.target_vocab_size,
        "pad": PAD,
    }
    model = typed(ModelConfig, {**config["model"], **sizes}, "model")
    return _payload(model, found.tokenizer.to_state(), config, found.weights)


def is_own(folder: Path) -> bool:
    """Whether a folder is of our own ``export format=safetensors``."""
    return "tokenizer" in read_mapping(folder / "config.json", optional=True)


def export_payload(folder: Path) -> dict[str, Any]:
    """The content of the checkpoint that ``export format=safetensors`` wrote as a folder."""
    found = read_safetensors(folder)
    return _payload(found.model.config, found.tokenizer, found.config, found.model.state_dict())


def _payload(
    model: ModelConfig, tokenizer: dict[str, Any], config: dict[str, Any], weights: dict[str, Any]
) -> dict[str, Any]:
    named = {f"{WEIGHTS_PREFIX}{name}": weight for name, weight in weights.items()}
    return {PORTABLE: portable_part(model, tokenizer, config), "state_dict": named}
