"""The weights of models of transformers as ours, and back; the names of modules in both.

Sinusoids there have all sines before all cosines, so the axis of the residual stream has another
order. A Marian translation starts with the symbol of padding; our start symbol gets its vector.
Source: transformers 5, ``models/*/modeling_*.py``.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer.checkpoint.checkpoint import build_empty
from transformer.common.errors import InputError
from transformer.interchange.architectures.architecture import (
    Architecture,
    nearest_architecture,
    sinusoid_count,
)
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

_KEY_BIAS = ".key.bias"


def import_weights(
    weights: Mapping[str, Tensor],
    architecture: Architecture,
    config: ModelConfig,
    source: ImportedIds,
    target: ImportedIds,
) -> dict[str, Tensor]:
    """Our ``state_dict``, bfloat16 or float32; InputError if a tensor is missing or misshapen."""
    axis = _axis(config.d_model)

    def take(name: str, *shape: int) -> Tensor:
        actual = tuple(weights[name].shape) if name in weights else "no tensor"
        if actual != shape:
            raise InputError(f"the tensor {name} must have the shape {shape}, not {actual}")
        weight = weights[name]
        return weight if weight.dtype == torch.bfloat16 else weight.float()

    def rows(name: str, ids: ImportedIds) -> Tensor:
        table = take(name, 1 + max(ids.rows), config.d_model)[list(ids.rows)]
        return table[:, axis] if architecture.halves else table

    ours = _absent(config, architecture)
    for name, their_name, shape in _pairs(config, architecture):
        offset = architecture.position_offset if name.endswith("positions.table") else 0
        weight = take(their_name, shape[0] + offset, *shape[1:])[offset:]
        module = name.rpartition(".")[0]
        ours[name] = _along_stream(weight, module, axis) if architecture.halves else weight
    if config.front_end is None:
        source_table = rows(f"{architecture.prefix}{_table(config, 'encoder')}", source)
        ours["source_embedding.tokens.lookup.weight"] = target_table = source_table
    if config.front_end is not None or source is not target:
        target_table = rows(f"{architecture.prefix}{_table(config, 'decoder')}", target)
    ours["target_embedding.tokens.lookup.weight"] = target_table
    untied = config.tie_embeddings == "inputs"
    ours["projection.weight"] = rows(_OUTPUT, target) if untied else target_table
    bias = torch.zeros(len(target.rows))
    if architecture.output_bias and "final_logits_bias" in weights:
        bias = take("final_logits_bias", 1, 1 + max(target.rows))[0][list(target.rows)]
    bias[list(target.never)] = NEVER
    if bias.any():
        ours["projection.bias"] = bias
    return ours


def export_weights(
    model: Transformer, source: ExportedIds, target: ExportedIds
) -> dict[str, Tensor]:
    """The tensors of a model for transformers."""
    config = model.config
    architecture = nearest_architecture(config)
    ours = {name: weight.detach().float().cpu() for name, weight in model.state_dict().items()}
    axis = _axis(config.d_model).argsort()

    def rows(name: str, ids: ExportedIds) -> Tensor:
        table = ours[name][list(ids.rows)]
        return (table[:, axis] if architecture.halves else table).contiguous()

    theirs: dict[str, Tensor] = {}
    for name, their_name, _ in _pairs(config, architecture):
        weight = ours[name]
        if architecture.halves:
            weight = _along_stream(weight, name.rpartition(".")[0], axis)
        if name.endswith("positions.table"):
            weight = F.pad(weight, (0, 0, architecture.position_offset, 0))
        theirs[their_name] = weight.contiguous()
    if architecture.model_type == "pegasus":
        positions = sinusoids(sinusoid_count(config), config.d_model)[:, axis]
        for stack in ("encoder", "decoder"):
            theirs[f"model.{stack}.embed_positions.weight"] = positions.clone()
    for side, stack, ids in _embedded_sides(config, source, target):
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


def is_untied(weights: Mapping[str, Tensor], architecture: Architecture) -> bool:
    """Whether the output has other weights than the embedding."""
    shared = weights.get(f"{architecture.prefix}shared.weight")
    output = weights.get(_OUTPUT)
    return shared is not None and output is not None and not torch.equal(shared, output)


def _embedded_sides(
    config: ModelConfig, source: ExportedIds, target: ExportedIds
) -> list[tuple[str, str, ExportedIds]]:
    """The sides that have tokens, each with its stack."""
    sides = [("source", "encoder", source), ("target", "decoder", target)]
    return sides if config.front_end is None else sides[1:]


def _absent(config: ModelConfig, architecture: Architecture) -> dict[str, Tensor]:
    """Zero biases of keys, which Whisper has not: no softmax sees them."""
    if architecture.model_type != "whisper":
        return {}
    shapes = {name: weight.shape for name, weight in build_empty(config).state_dict().items()}
    return {name: torch.zeros(shapes[name]) for name in shapes if name.endswith(_KEY_BIAS)}


def _table(config: ModelConfig, stack: str) -> str:
    """The name of the embedding of a stack."""
    shared = config.tie_embeddings in ("all", "inputs")
    return "shared.weight" if shared else f"{stack}.embed_tokens.weight"


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
    gated = any(isinstance(module, GatedFeedForward) for module in model.modules())
    names = FAIRSEQ if architecture.prefix else T5
    theirs = dict(layer_names(names, config.encoder_layers, config.decoder_layers, gated=gated))
    pairs = []
    for name, weight in model.state_dict().items():
        module, _, part = name.rpartition(".")
        if name.endswith(_KEY_BIAS) and architecture.model_type == "whisper":
            continue
        if name in theirs:
            pairs.append((name, theirs[name], tuple(weight.shape)))
        elif module in theirs:
            pairs.append((name, f"{theirs[module]}.{part}", tuple(weight.shape)))
    return pairs


def layer_names(
    modules: Mapping[str, str], encoder_layers: int, decoder_layers: int, *, gated: bool = False
) -> Iterator[tuple[str, str]]:
    """Each module of a model: our name, and that in transformers."""
    for ours, theirs in modules.items():
        depth = encoder_layers if ours.startswith("encoder") else decoder_layers
        if not gated:
            theirs = theirs.replace(".wi_1", ".wi")
        for number in range(depth if "*" in ours else 1):
            yield ours.replace("*", str(number)), theirs.replace("*", str(number))


_STACKS = {
    "encoder": (("attention", "attention_residual"),),
    "decoder": (
        ("self_attention", "self_residual"),
        ("cross_attention", "cross_residual"),
    ),
}
"""Our attentions of a layer, each with its residual connection."""


def _fairseq() -> dict[str, str]:
    names = {}
    for stack, attentions in _STACKS.items():
        ours = f"{stack}.layers.*"
        theirs = f"model.{stack}.layers.*"
        for (attention, residual), kind in zip(attentions, ("self", "encoder"), strict=False):
            for part in ("query", "key", "value"):
                names[f"{ours}.{attention}.{part}"] = f"{theirs}.{kind}_attn.{part[0]}_proj"
            names[f"{ours}.{attention}.output"] = f"{theirs}.{kind}_attn.out_proj"
            names[f"{ours}.{residual}.norm"] = f"{theirs}.{kind}_attn_layer_norm"
        # In a decoder of Marian, a recurrence may stand in place of the self-attention.
        names["decoder.layers.*.self_attention.forget"] = "model.decoder.layers.*.self_attn.forget"
        side = "source" if stack == "encoder" else "target"
        names |= {
            f"{ours}.feed_forward.inner": f"{theirs}.fc1",
            f"{ours}.feed_forward.outer": f"{theirs}.fc2",
            f"{ours}.feed_forward_residual.norm": f"{theirs}.final_layer_norm",
            f"{stack}.final_norm": f"model.{stack}.layer_norm",
            f"{side}_embedding.norm": f"model.{stack}.layernorm_embedding",
            f"{side}_embedding.positions.table": f"model.{stack}.embed_positions.weight",
        }
    # Of Whisper.
    for number, part in enumerate(("first", "second"), 1):
        names[f"source_embedding.front_end.{part}"] = f"model.encoder.conv{number}"
    return names


def _t5() -> dict[str, str]:
    names = {}
    for stack, attentions in _STACKS.items():
        ours = f"{stack}.layers.*"
        theirs = f"{stack}.block.*.layer"
        named = zip(attentions, ("SelfAttention", "EncDecAttention"), strict=False)
        for index, ((attention, residual), kind) in enumerate(named):
            for part in ("query", "key", "value", "output"):
                names[f"{ours}.{attention}.{part}"] = f"{theirs}.{index}.{kind}.{part[0]}"
            names[f"{ours}.{residual}.norm"] = f"{theirs}.{index}.layer_norm"
        block = f"{theirs}.{len(attentions)}"
        for part, matrix in {"gate": "wi_0", "inner": "wi_1", "outer": "wo"}.items():
            names[f"{ours}.feed_forward.{part}"] = f"{block}.DenseReluDense.{matrix}"
        names[f"{ours}.feed_forward_residual.norm"] = f"{block}.layer_norm"
        names[f"{stack}.final_norm"] = f"{stack}.final_layer_norm"
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        names[f"{stack}.attention_context.bias.table"] = bias
    return names


FAIRSEQ = _fairseq()
"""Our names of modules, and those in Marian, Pegasus, M2M-100, BART, mBART, Blenderbot and Whisper.

A model has those of its settings; ``*`` is the number of a layer. A name that ends with a weight is
that of a single tensor."""

T5 = _t5()
"""Likewise, those in T5 and its kin."""
