"""The weights of models of transformers as ours, and back.

Sinusoids there have all sines before all cosines, so the axis of the residual stream has another
order. A Marian translation starts with the symbol of padding; our start symbol gets its vector.
Source: transformers 5, ``models/``.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer.checkpoint.checkpoint import build_empty
from transformer.common.errors import InputError
from transformer.interchange.architectures.architecture import Architecture, nearest_architecture
from transformer.interchange.architectures.module_names import FAIRSEQ, T5, layer_names
from transformer.interchange.architectures.subwords import (
    NEVER,
    NEVER_TRAINED,
    ExportedIds,
    ImportedIds,
)
from transformer.model.layers.feedforward import GatedFeedForward
from transformer.model.positions.absolute import sinusoids
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig

_OUTPUT = "lm_head.weight"


def is_untied(weights: Mapping[str, Tensor], architecture: Architecture) -> bool:
    """Whether the output has other weights than the embedding."""
    shared, output = weights.get(f"{architecture.prefix}shared.weight"), weights.get(_OUTPUT)
    return shared is not None and output is not None and not torch.equal(shared, output)


def _axis(d_model: int) -> Tensor:
    """For each axis of our residual stream, that of Marian."""
    half = d_model // 2
    return torch.stack((torch.arange(half), torch.arange(half, d_model)), dim=1).flatten()


def _along_stream(weight: Tensor, name: str, axis: Tensor) -> Tensor:
    """A weight whose axis of the residual stream has another order."""
    if name.endswith((".output", ".outer", ".norm", ".final_norm")):
        return weight[axis]
    return weight[:, axis] if weight.dim() == 2 else weight


def _pairs(
    config: ModelConfig, architecture: Architecture
) -> list[tuple[str, str, tuple[int, ...]]]:
    """Each weight of the layers and positions: our name, that in transformers, and our shape."""
    model = build_empty(config)
    depths = config.encoder_layers, config.decoder_layers
    gated = any(isinstance(one, GatedFeedForward) for one in model.modules())
    names = FAIRSEQ if architecture.prefix else T5
    there = dict(layer_names(names, *depths, gated=gated))
    pairs = []
    for name, weight in model.state_dict().items():
        module, _, part = name.rpartition(".")
        other = there.get(name) or (f"{there[module]}.{part}" if module in there else None)
        if other is not None:
            pairs.append((name, other, tuple(weight.shape)))
    return pairs


def import_weights(
    weights: Mapping[str, Tensor],
    architecture: Architecture,
    config: ModelConfig,
    source: ImportedIds,
    target: ImportedIds,
) -> dict[str, Tensor]:
    """Our ``state_dict``, bfloat16 or float32; InputError if a tensor is missing or misshapen."""
    d_model, axis = config.d_model, _axis(config.d_model)

    def take(name: str, *shape: int) -> Tensor:
        found = tuple(weights[name].shape) if name in weights else "no tensor"
        if found != shape:
            raise InputError(f"the tensor {name} must have the shape {shape}, not {found}")
        weight = weights[name]
        return weight if weight.dtype == torch.bfloat16 else weight.float()

    def rows(name: str, ids: ImportedIds) -> Tensor:
        table = take(name, 1 + max(ids.rows), d_model)[list(ids.rows)]
        return table[:, axis] if architecture.halves else table

    ours: dict[str, Tensor] = {}
    for here, there, shape in _pairs(config, architecture):
        offset = architecture.position_offset if here.endswith("positions.table") else 0
        weight = take(there, shape[0] + offset, *shape[1:])[offset:]
        module = here.rpartition(".")[0]
        ours[here] = _along_stream(weight, module, axis) if architecture.halves else weight
    first = last = rows(f"{architecture.prefix}{_table(config, 'encoder')}", source)
    if source is not target:
        last = rows(f"{architecture.prefix}{_table(config, 'decoder')}", target)
    ours["source_embedding.tokens.lookup.weight"] = first
    ours["target_embedding.tokens.lookup.weight"] = last
    untied = config.tie_embeddings == "inputs"
    ours["projection.weight"] = rows(_OUTPUT, target) if untied else last
    bias = torch.zeros(len(target.rows))
    if architecture.output_bias and "final_logits_bias" in weights:
        bias = take("final_logits_bias", 1, 1 + max(target.rows))[0][list(target.rows)]
    bias[list(target.never)] = NEVER
    if bias.any():
        ours["projection.bias"] = bias
    return ours


def _table(config: ModelConfig, stack: str) -> str:
    shared = config.tie_embeddings in ("all", "inputs")
    return "shared.weight" if shared else f"{stack}.embed_tokens.weight"


def export_weights(
    model: Transformer, source: ExportedIds, target: ExportedIds
) -> dict[str, Tensor]:
    """The tensors of a model for transformers."""
    config, architecture = model.config, nearest_architecture(model.config)
    ours = {name: weight.detach().float().cpu() for name, weight in model.state_dict().items()}
    axis = _axis(config.d_model).argsort()

    def rows(name: str, ids: ExportedIds) -> Tensor:
        table = ours[name][list(ids.rows)]
        return (table[:, axis] if architecture.halves else table).contiguous()

    theirs = _layers(ours, config, architecture, axis)
    for side, stack, ids in (("source", "encoder", source), ("target", "decoder", target)):
        name = f"{architecture.prefix}{_table(config, stack)}"
        theirs[name] = rows(f"{side}_embedding.tokens.lookup.weight", ids)
    if config.tie_embeddings == "inputs":
        theirs[_OUTPUT] = rows("projection.weight", target)
    if architecture.output_bias:
        bias = ours.get("projection.bias", torch.zeros(config.target_vocab_size))
        bias = bias[list(target.rows)]
        # transformers itself bans the symbols that no translation has.
        bias[bias < NEVER_TRAINED] = 0.0
        theirs["final_logits_bias"] = bias[None]
    return theirs


def _layers(
    ours: Mapping[str, Tensor], config: ModelConfig, architecture: Architecture, axis: Tensor
) -> dict[str, Tensor]:
    theirs = {}
    for here, there, _ in _pairs(config, architecture):
        weight = ours[here]
        if architecture.halves:
            weight = _along_stream(weight, here.rpartition(".")[0], axis)
        if here.endswith("positions.table"):
            weight = F.pad(weight, (0, 0, architecture.position_offset, 0))
        theirs[there] = weight.contiguous()
    if architecture.model_type == "pegasus":
        positions = sinusoids(config.max_length, config.d_model)[:, axis]
        for stack in ("encoder", "decoder"):
            theirs[f"model.{stack}.embed_positions.weight"] = positions.clone()
    return theirs
