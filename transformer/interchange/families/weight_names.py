"""The weights of models of transformers as ours, and back.

Their positions have all sines before all cosines, so the axis of the residual stream has another
order. A Marian translation starts with the symbol of padding; our start symbol gets its vector.
Source: transformers 5, ``models/marian``, ``models/m2m_100``.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from transformer.common.errors import InputError
from transformer.interchange.families.family import Family, TransformersConfig, nearest_family
from transformer.interchange.families.subwords import (
    NEVER,
    NEVER_TRAINED,
    ExportedIds,
    ImportedIds,
)
from transformer.model.config import ModelConfig
from transformer.model.layers.absolute_positions import sinusoids
from transformer.model.transformer import Transformer

_ATTENTIONS = {
    "encoder": (("attention", "attention_residual", "self_attn"),),
    "decoder": (
        ("self_attention", "self_residual", "self_attn"),
        ("cross_attention", "cross_residual", "encoder_attn"),
    ),
}
"""Our attention of a layer and its residual connection, and the attention there."""

_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_FEED_FORWARD = {
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}


def _axis(d_model: int) -> Tensor:
    """For each axis of our residual stream, that of Marian."""
    half = d_model // 2
    return torch.stack((torch.arange(half), torch.arange(half, d_model)), dim=1).flatten()


def layers(config: TransformersConfig | ModelConfig, family: Family) -> Iterator[tuple[str, str]]:
    """Each module of the stacks: our name, and that in transformers."""
    for stack, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            here, there = f"{stack}.layers.{number}", f"model.{stack}.layers.{number}"
            for attention, residual, other in _ATTENTIONS[stack]:
                for part, projection in _PROJECTIONS.items():
                    yield f"{here}.{attention}.{part}", f"{there}.{other}.{projection}"
                yield f"{here}.{residual}.norm", f"{there}.{other}_layer_norm"
            for name, other in _FEED_FORWARD.items():
                yield f"{here}.{name}", f"{there}.{other}"
        if family.norm_order == "pre":
            yield f"{stack}.final_norm", f"model.{stack}.layer_norm"


def _along_stream(weight: Tensor, name: str, axis: Tensor) -> Tensor:
    """A weight whose axis of the residual stream has another order."""
    if name.endswith((".output", ".outer", ".norm", ".final_norm")):
        return weight[axis]
    return weight[:, axis] if weight.dim() == 2 else weight


def import_weights(
    weights: Mapping[str, Tensor],
    config: TransformersConfig,
    source: ImportedIds,
    target: ImportedIds,
) -> dict[str, Tensor]:
    """Our ``state_dict``, in float32; raises InputError if a tensor is missing or misshapen."""
    d_model, ffn = config.d_model, config.encoder_ffn_dim
    axis = _axis(d_model)

    def take(name: str, *shape: int) -> Tensor:
        found = tuple(weights[name].shape) if name in weights else "no tensor"
        if found != shape:
            raise InputError(f"the tensor {name} must have the shape {shape}, not {found}")
        return weights[name].float()

    ours: dict[str, Tensor] = {}
    for here, there in layers(config, config.family):
        wide, deep = {"inner": (ffn, d_model), "outer": (d_model, ffn)}.get(
            here.rpartition(".")[2], (d_model, d_model)
        )
        shape = (d_model,) if here.endswith("norm") else (wide, deep)
        weight = take(f"{there}.weight", *shape)
        bias = take(f"{there}.bias", wide)
        ours[f"{here}.weight"] = _along_stream(weight, here, axis)
        ours[f"{here}.bias"] = _along_stream(bias, here, axis)
    for side, stack, vocabulary in (("source", "encoder", source), ("target", "decoder", target)):
        name = "shared" if config.share_encoder_decoder_embeddings else f"{stack}.embed_tokens"
        table = take(f"model.{name}.weight", 1 + max(vocabulary.rows), d_model)
        ours[f"{side}_embedding.tokens.lookup.weight"] = table[list(vocabulary.rows)][:, axis]
    ours["projection.weight"] = ours["target_embedding.tokens.lookup.weight"]
    bias = torch.zeros(len(target.rows))
    if config.family.output_bias:
        bias = take("final_logits_bias", 1, 1 + max(target.rows))[0][list(target.rows)]
    bias[list(target.never)] = NEVER
    if bias.any():
        ours["projection.bias"] = bias
    return ours


def export_weights(
    model: Transformer, source: ExportedIds, target: ExportedIds
) -> dict[str, Tensor]:
    """The tensors of a model for transformers."""
    config, family = model.config, nearest_family(model.config)
    ours = {name: weight.detach().float().cpu() for name, weight in model.state_dict().items()}
    axis = _axis(config.d_model).argsort()
    theirs: dict[str, Tensor] = {}
    if family.stores_positions:
        positions = sinusoids(config.max_length, config.d_model)[:, axis]
        for stack in ("encoder", "decoder"):
            theirs[f"model.{stack}.embed_positions.weight"] = positions.clone()
    for here, there in layers(config, family):
        for part in ("weight", "bias"):
            name = f"{here}.{part}"
            theirs[f"{there}.{part}"] = _along_stream(ours[name], here, axis).contiguous()
    tables = {"model.shared": ("source", source)}
    if config.tie_embeddings != "all":
        tables = {
            "model.encoder.embed_tokens": ("source", source),
            "model.decoder.embed_tokens": ("target", target),
        }
    for name, (side, ids) in tables.items():
        table = ours[f"{side}_embedding.tokens.lookup.weight"][list(ids.rows)]
        theirs[f"{name}.weight"] = table[:, axis].contiguous()
    if family.output_bias:
        bias = ours.get("projection.bias", torch.zeros(config.target_vocab_size))
        bias = bias[list(target.rows)]
        # transformers itself bans the symbols that no translation has.
        bias[bias < NEVER_TRAINED] = 0.0
        theirs["final_logits_bias"] = bias[None]
    return theirs
