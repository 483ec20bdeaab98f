"""A model in Marian's own form: ``decoder.yml`` names the weights, an npz, and the vocabularies.

The weights get their names in transformers. Sources: Marian 1.12, ``src/models/transformer.h``;
``convert_marian_to_pytorch.py`` of transformers 4.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer.common.errors import InputError, raise_objections, readable
from transformer.interchange.architectures.architecture import (
    Architecture,
    FairseqConfig,
    read_config,
)
from transformer.interchange.architectures.marian import START, build_tokenizer
from transformer.interchange.architectures.subwords import (
    ImportedTokenizer,
    checked_ids,
    read_subwords,
)
from transformer.interchange.architectures.weights import FAIRSEQ, layer_names
from transformer.interchange.files import read_arrays, read_yaml
from transformer.interchange.verification import Values
from transformer.model.positions.absolute import sinusoids

DECODER = "decoder.yml"

_CONFIG = "special:model.yml"
"""The array with the text of the settings."""

_ASSUMED = {
    "type": ("transformer",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-emb": ("d",),
    "transformer-postprocess-top": ("",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-train-position-embeddings": ("false",),
    # Marian's gelu is an approximation.
    "transformer-ffn-activation": ("swish", "relu"),
    "right-left": ("false",),
}
"""The values of these settings that can be imported; the first is the default."""

_RECURRENT = {
    "dec-cell": ("ssru",),
    "transformer-rnn-projection": ("false",),
    "layer-normalization": ("false",),
}
"""Likewise, of a decoder with ``transformer-decoder-autoreg: rnn``."""

_SSRU = {
    "v_proj": ("W",),
    "forget": ("Wf", "bf"),
    "self_attn_layer_norm": ("ffn_ln_scale", "ffn_ln_bias"),
}
"""The names of its weights and biases, and of those of the norm behind it."""

_STACKS = ("encoder", "decoder")
_MAX_LENGTH = 512
"""The ``max_length`` of OPUS-MT; Marian has no limit."""

_PARTS = {
    "self_attn": "self",
    "encoder_attn": "context",
    "self_attn_layer_norm": "self_Wo_ln",
    "encoder_attn_layer_norm": "context_Wo_ln",
    "final_layer_norm": "ffn_ffn_ln",
}
"""Modules of transformers, and what the names of their weights have in Marian."""


def read_npz(
    folder: Path,
) -> tuple[FairseqConfig, Architecture, dict[str, Tensor], ImportedTokenizer]:
    """Config, architecture, weights and tokenizer; raises InputError for damaged ones."""
    decoder = read_yaml(folder / DECODER)
    [weights_file] = _files(folder, decoder, "models", 1)
    vocabularies = _files(folder, decoder, "vocabs", 2)
    arrays = read_arrays(weights_file)
    with readable(weights_file):
        text = arrays.pop(_CONFIG).tobytes().rstrip(b"\0")
    settings = read_yaml(weights_file, text)
    recurrent = settings.get("transformer-decoder-autoreg") == "rnn"
    config, architecture = _config(settings, decoder, recurrent, shared="Wemb" in arrays)
    if vocabularies[0].suffix == ".spm":
        subwords = [read_subwords(file) for file in vocabularies]
        ids = [
            {piece.piece: index for index, piece in enumerate(model.pieces)} for model in subwords
        ]
    else:
        subwords = [read_subwords(folder / f"{side}.spm") for side in ("source", "target")]
        ids = []
        for file in vocabularies:
            numbers = read_yaml(file)
            ids.append({name: _number(numbers, name, int) for name in numbers})
    with_start = [
        checked_ids({**numbers, START: len(numbers)}, file)
        for numbers, file in zip(ids, vocabularies, strict=True)
    ]
    tables = 1 if config.share_encoder_decoder_embeddings else 2
    if tables == 1 and ids[0] != ids[1]:
        raise InputError(
            f"{folder / DECODER} names two vocabularies, and {weights_file} has one table"
        )
    weights = _weights(arrays, config, settings, recurrent)
    return config, architecture, weights, build_tokenizer(subwords, with_start[:tables])


def _files(folder: Path, decoder: Mapping[str, Any], key: str, number: int) -> list[Path]:
    """The files in the folder that ``decoder.yml`` names."""
    names = decoder.get(key)
    names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    plain = [name for name in names if name and name == Path(name.replace("\\", "/")).name]
    if len(plain) != number or plain != names:
        raise InputError(f"{folder / DECODER} must name {number} of {key}, without a folder")
    return [folder / name for name in plain]


def _number(values: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    with readable(f"the number {key[:40]!r}"):
        return kind(values.get(key, default))


def _config(
    settings: Mapping[str, Any], decoder: Mapping[str, Any], recurrent: bool, *, shared: bool
) -> tuple[FairseqConfig, Architecture]:
    assumed = _ASSUMED | _RECURRENT if recurrent else _ASSUMED
    raise_objections(
        f"{key} cannot be imported, only with the value {' or '.join(map(repr, values))}"
        for key, values in assumed.items()
        if settings.get(key, values[0]) not in values
    )
    sizes = {"d_model": "dim-emb", "encoder_layers": "enc-depth", "decoder_layers": "dec-depth"}
    for stack in _STACKS:
        sizes[f"{stack}_attention_heads"] = "transformer-heads"
        sizes[f"{stack}_ffn_dim"] = "transformer-dim-ffn"
    config, architecture = read_config(
        {name: _number(settings, key, int) for name, key in sizes.items()}
        | {
            "model_type": "marian",
            "activation_function": settings.get("transformer-ffn-activation", "swish"),
            "scale_embedding": True,
            "max_position_embeddings": _MAX_LENGTH,
            "share_encoder_decoder_embeddings": shared,
            "dropout": _number(settings, "transformer-dropout", float, 0.1),
            "num_beams": _number(decoder, "beam-size", int, 4),
            "length_penalty": _number(decoder, "normalize", float, 0.0),
        }
    )
    if recurrent:
        has: Values = {
            **architecture.has,
            "decoder_layer": ("ssru",),
            "positions": ("learned",),
        }
        architecture = architecture._replace(has=has)
    return config, architecture


def _sinusoids(d_model: int) -> Tensor:
    """Marian's own positions, whose last frequency is 1/10,000: no setting here has these."""
    table = sinusoids(_MAX_LENGTH, d_model, -2, fairseq=True)
    # length (frequency sine_or_cosine) -> length (sine_or_cosine frequency)
    return table.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1)


def _weights(
    arrays: dict[str, Any], config: FairseqConfig, settings: Mapping[str, Any], recurrent: bool
) -> dict[str, Tensor]:
    """The weights with the names of transformers; raises InputError for another array."""
    unused = set(arrays)
    weights: dict[str, Tensor] = {}

    def take(name: str) -> Tensor:
        unused.discard(name)
        array = arrays.get(name)
        if array is None or array.ndim > 2 or array.dtype.kind != "f":
            raise InputError(f"the array {name} is missing, or no matrix of floats")
        return torch.from_numpy(np.atleast_2d(array).astype(np.float32))

    modules = {ours: theirs for ours, theirs in FAIRSEQ.items() if "*" in ours}
    for _, module in layer_names(modules, config.encoder_layers, config.decoder_layers):
        names = _names(module, settings, recurrent)
        for kind, name in zip(("weight", "bias"), names, strict=False):
            array = take(name)
            weights[f"{module}.{kind}"] = array.flatten() if len(array) == 1 else array.T
    if recurrent:
        for stack in _STACKS:
            weights[f"model.{stack}.embed_positions.weight"] = _sinusoids(config.d_model)
    tables = {"model.shared.weight": "Wemb"}
    if not config.share_encoder_decoder_embeddings:
        tables = {f"model.{stack}.embed_tokens.weight": f"{stack}_Wemb" for stack in _STACKS}
    for name, table in tables.items():
        # In Marian, a translation starts with a vector of zeros, which is of no symbol.
        weights[name] = torch.nn.functional.pad(take(table), (0, 0, 0, 1))
    weights["final_logits_bias"] = torch.nn.functional.pad(take("decoder_ff_logit_out_b"), (0, 1))
    if unused:
        raise InputError(f"the array {min(unused)[:60]!r} is of a model that cannot be imported")
    return weights


def _names(name: str, settings: Mapping[str, Any], recurrent: bool) -> Sequence[str]:
    """The weight and bias in Marian of a module of transformers; none if the model lacks it.

    Those of ``model.encoder.layers.0.self_attn.q_proj`` are ``encoder_l1_self_Wq`` and
    ``encoder_l1_self_bq``.
    """
    _, stack, _, number, module, *projection = name.split(".")
    layer = f"{stack}_l{int(number) + 1}"
    tied = settings.get("transformer-tied-layers")
    if stack == "decoder" and tied:
        with readable("transformer-tied-layers"):
            layer = f"{stack}_l{int(tied[int(number)])}"
    last = [module, *projection][-1]
    if stack == "decoder" and module.startswith("self") and recurrent:
        return [f"{layer}_rnn_{ending}" for ending in _SSRU.get(last, ())]
    if last == "forget":
        return ()
    if module in ("fc1", "fc2"):
        return f"{layer}_ffn_W{module[-1]}", f"{layer}_ffn_b{module[-1]}"
    part = f"{layer}_{_PARTS[module]}"
    if not projection:
        return f"{part}_scale", f"{part}_bias"
    return f"{part}_W{projection[0][0]}", f"{part}_b{projection[0][0]}"
