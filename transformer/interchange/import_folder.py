"""A model of another framework as a run of ours: its folder is read, and a checkpoint written."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer.checkpoint.checkpoint import PORTABLE, WEIGHTS_PREFIX, Portable, all_finite
from transformer.checkpoint.exported import read_safetensors
from transformer.common.errors import InputError, raise_objections, readable
from transformer.common.schema import typed, typed_value
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.architectures.architecture import model_settings, read_config
from transformer.interchange.architectures.npz import DECODER, read_npz
from transformer.interchange.architectures.subwords import ImportedTokenizer
from transformer.interchange.architectures.weight_names import import_weights, is_untied
from transformer.interchange.files import read_mapping
from transformer.settings.decoding import SearchConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import EOS, PAD


class Imported(NamedTuple):
    """The content of a folder."""

    model: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    languages: tuple[str | None, ...]
    decoding: SearchConfig


def read_folder(folder: Path) -> Imported:
    """The model of a folder of Marian itself, or of transformers."""
    languages: tuple[str | None, ...] = (None, None)
    if (folder / DECODER).is_file() and not (folder / "config.json").is_file():
        config, architecture, weights, vocabulary = read_npz(folder)
    else:
        values = read_mapping(folder / "config.json")
        values |= read_mapping(folder / "generation_config.json", optional=True)
        config, architecture = read_config(values)
        weights = read_weights(folder)
        if not any(name.startswith(architecture.prefix) for name in weights):
            # Saved without its output, as facebook/bart-large is.
            weights = {f"{architecture.prefix}{name}": weight for name, weight in weights.items()}
        vocabulary = architecture.files.import_tokenizer(folder, values.get("vocab_size"))
        _check_symbols(values, vocabulary, architecture.start)
        names = read_mapping(folder / "tokenizer_config.json", optional=True)
        keys = ("src", "tgt") if architecture.tags_both_sides else ("source", "target")
        languages = tuple(_code(names.get(f"{key}_lang")) for key in keys)
    settings = model_settings(config, architecture, untied=is_untied(weights, architecture))
    if settings["tie_embeddings"] not in architecture.has["tie_embeddings"]:
        raise InputError(f"{folder}: lm_head.weight is not that of the embeddings, as it must be")
    tokenizer = vocabulary.tokenizer
    sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
    model = typed(ModelConfig, settings | {"pad": PAD}, "model").sized(*sizes)
    ours = import_weights(weights, architecture, model, vocabulary.source, vocabulary.target)
    if not all(map(all_finite, ours.values())):
        raise InputError(f"{folder}: its weights hold NaN or infinity; use another model")
    has_bias = "projection.bias" in ours
    model = replace(model, output_bias=has_bias and (architecture.output_bias or "fixed"))
    decoding = SearchConfig(
        beam_size=config.num_beams,
        length_penalty=config.length_penalty,
        # There a score is the mean of the log-probabilities of the tokens.
        length_penalty_form="average",
        no_repeat_ngram=config.no_repeat_ngram_size,
        # There the start counts.
        min_length=max(0, config.min_length - 1),
    )
    return Imported(model, tokenizer, ours, languages, decoding)


def _check_symbols(values: Mapping[str, Any], vocabulary: ImportedTokenizer, start: int) -> None:
    source, target = vocabulary.source, vocabulary.target.rows
    padding = source.rows[PAD] if source.padding is None else source.padding
    known = {"pad": padding, "eos": target[EOS], "decoder_start": target[start]}
    raise_objections(
        f"{key}_token_id={str(given)[:20]} in config.json or generation_config.json must be {own}, "
        "as in the vocabulary"
        for key, own in known.items()
        if (given := values.get(f"{key}_token_id")) not in (None, own, [own])
    )


def _code(name: Any) -> str | None:
    return name if isinstance(name, str) and re.fullmatch(r"[\w-]{1,20}", name) else None


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, mapped into memory, from safetensors or torch files without code."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return _read_file(folder / name)
        if (index := folder / f"{name}.index.json").is_file():
            listed = typed_value(
                read_mapping(index).get("weight_map"), Mapping[str, str], str(index)
            )
            parts = sorted(set(listed.values()))
            if not parts or any(part != Path(part.replace("\\", "/")).name for part in parts):
                raise InputError(f"{index} must name files of its own folder")
            return {k: w for part in parts for k, w in _read_file(folder / part).items()}
    raise InputError(f"{folder} holds neither model.safetensors nor pytorch_model.bin")


def _read_file(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if file.suffix == ".safetensors":
        with readable(file, SafetensorError):
            return load_file(file)
    # Files of torch before 1.6 are no archives, and cannot be mapped.
    mapped = zipfile.is_zipfile(file)
    with readable(file, pickle.UnpicklingError), warnings.catch_warnings():
        # Before it refuses a pickle, torch warns of its protocol.
        warnings.simplefilter("ignore", UserWarning)
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
        if not all(isinstance(one, Tensor) for one in found.values()):
            raise ValueError("it holds more than tensors")
        return dict(found)


def imported_payload(found: Imported, config: RunConfig) -> dict[str, Any]:
    """The content of a checkpoint, with the config of a training run."""
    # The text of its training is unknown; it has learned all of its positions.
    longest_source = found.model.max_length - 1
    return _payload(Portable(config, found.tokenizer.to_state(), longest_source), found.weights)


def is_own(folder: Path) -> bool:
    """Whether a folder is of our own ``export format=safetensors``."""
    return "tokenizer" in read_mapping(folder / "config.json", optional=True)


def export_payload(folder: Path) -> dict[str, Any]:
    """The content of the checkpoint that ``export format=safetensors`` wrote as a folder."""
    found = read_safetensors(folder)
    return _payload(found.portable, found.model.state_dict())


def _payload(portable: Portable, weights: dict[str, Any]) -> dict[str, Any]:
    named = {f"{WEIGHTS_PREFIX}{name}": weight for name, weight in weights.items()}
    return {PORTABLE: portable.to_plain(), "state_dict": named}
