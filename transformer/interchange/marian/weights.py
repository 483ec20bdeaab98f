"""Marian and M2M-100 models of Hugging Face: config and weights as ours, and back.

Source: transformers 5, ``models/marian``, ``models/m2m_100``. Their positions have all sines before
all cosines, so the axis of the residual stream has another order. A Marian translation starts with
the symbol of padding; our start symbol gets its vector.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import Range, typed
from transformer.data.tokenization.tokenizer import EOS
from transformer.interchange.marian.vocabulary import ExportedIds, ImportedIds
from transformer.model.layers.positions import sinusoids
from transformer.model.transformer import Transformer

NEVER = -100.0
"""Bias of symbols that no translation has. Label smoothing averages over the vocabulary: a much
lower bias would be most of the loss."""

NEVER_TRAINED = NEVER / 2
"""Lower biases are of such symbols, also after training."""

_STACKS = ("encoder", "decoder")
_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_FEED_FORWARD = {"feed_forward.inner": "fc1", "feed_forward.outer": "fc2"}


Kind = Literal["marian", "pegasus", "m2m_100"]
"""Values of ``model_type`` in a ``config.json``; Pegasus with the tokenizer of Marian."""

_SAME = "d_model encoder_layers decoder_layers dropout attention_dropout activation_dropout"
SETTINGS = {
    **{name: (name,) for name in _SAME.split()},
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "ffn_dim": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "layer_drop": ("encoder_layerdrop", "decoder_layerdrop"),
    "max_length": ("max_position_embeddings",),
}
"""Our settings of a model, and their names in a ``config.json``."""


@dataclass(frozen=True)
class MarianConfig:
    """The values of a ``config.json`` that decide what the model computes."""

    model_type: Kind
    d_model: Annotated[int, Range(2, 2**16)]
    encoder_layers: Annotated[int, Range(1, 1000)]
    decoder_layers: Annotated[int, Range(1, 1000)]
    encoder_attention_heads: Annotated[int, Range(1, 2**16)]
    decoder_attention_heads: Annotated[int, Range(1, 2**16)]
    encoder_ffn_dim: Annotated[int, Range(1, 2**20)]
    decoder_ffn_dim: Annotated[int, Range(1, 2**20)]
    activation_function: Literal["swish", "silu", "relu", "gelu"]
    scale_embedding: Literal[True]
    max_position_embeddings: Annotated[int, Range(1, 2**20)]
    tie_word_embeddings: Literal[True] = True
    share_encoder_decoder_embeddings: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    encoder_layerdrop: float = 0.0
    num_beams: Annotated[int, Range(1, 1000)] = 4
    length_penalty: Annotated[float, Range(-100, 100)] = 1.0

    def __post_init__(self) -> None:
        objections = [
            f"encoder_{part} and decoder_{part} differ; they must be the same"
            for part in ("attention_heads", "ffn_dim")
            if getattr(self, f"encoder_{part}") != getattr(self, f"decoder_{part}")
        ]
        odd = [f"config.json.d_model={self.d_model} must be even"] if self.d_model % 2 else []
        raise_objections(objections + odd)

    def settings(self) -> dict[str, Any]:
        """The keys under ``model.`` of a run."""
        swish, m2m = self.activation_function == "silu", self.model_type == "m2m_100"
        return {
            **{ours: getattr(self, names[0]) for ours, names in SETTINGS.items()},
            "activation": "swish" if swish else self.activation_function,
            "norm": "layer",
            "norm_order": "post" if self.model_type == "marian" else "pre",
            "positions": "fairseq" if m2m else "sinusoidal",
            "decoder_start": EOS if m2m else None,
            "tie_embeddings": "all" if self.share_encoder_decoder_embeddings else "decoder",
        }


def read_config(values: Mapping[str, Any]) -> MarianConfig:
    """Read a ``config.json``; raises InputError for a model that cannot be imported."""
    own = {field.name for field in fields(MarianConfig)}
    given = {key: value for key, value in values.items() if key in own and value is not None}
    return typed(MarianConfig, given, "config.json")


def _axis(d_model: int) -> Tensor:
    """For each axis of our residual stream, that of Marian."""
    half = d_model // 2
    return torch.stack((torch.arange(half), torch.arange(half, d_model)), dim=1).flatten()


def layers(encoder: int, decoder: int, pre_norm: bool) -> Iterator[tuple[str, str]]:
    """Each module of the stacks: our name, and that in transformers."""
    for stack, count in (("encoder", encoder), ("decoder", decoder)):
        own = stack == "encoder"
        attentions = {"attention" if own else "self_attention": "self_attn"}
        norms = {"attention_residual" if own else "self_residual": "self_attn_layer_norm"}
        norms["feed_forward_residual"] = "final_layer_norm"
        if not own:
            attentions["cross_attention"] = "encoder_attn"
            norms["cross_residual"] = "encoder_attn_layer_norm"
        for number in range(count):
            here, there = f"{stack}.layers.{number}", f"model.{stack}.layers.{number}"
            for name, other in attentions.items():
                for part, projection in _ATTENTION.items():
                    yield f"{here}.{name}.{part}", f"{there}.{other}.{projection}"
            for name, other in norms.items():
                yield f"{here}.{name}.norm", f"{there}.{other}"
            for name, other in _FEED_FORWARD.items():
                yield f"{here}.{name}", f"{there}.{other}"
        if pre_norm:
            yield f"{stack}.final_norm", f"model.{stack}.layer_norm"


def _along_stream(weight: Tensor, name: str, axis: Tensor) -> Tensor:
    """A weight with its places of the residual stream in another order."""
    if name.endswith((".output", ".outer", ".norm", ".final_norm")):
        return weight[axis]
    return weight[:, axis] if weight.dim() == 2 else weight


def import_weights(
    weights: Mapping[str, Tensor],
    config: MarianConfig,
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
    pre_norm = config.model_type != "marian"
    for here, there in layers(config.encoder_layers, config.decoder_layers, pre_norm):
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
    if config.model_type != "m2m_100":
        bias = take("final_logits_bias", 1, 1 + max(target.rows))[0][list(target.rows)]
    bias[list(target.never)] = NEVER
    if bias.any():
        ours["projection.bias"] = bias
    return ours


def export_weights(
    model: Transformer, source: ExportedIds, target: ExportedIds
) -> dict[str, Tensor]:
    """The tensors of a model of Marian, Pegasus or M2M-100."""
    config = model.config
    ours = {name: weight.detach().float().cpu() for name, weight in model.state_dict().items()}
    axis = _axis(config.d_model).argsort()
    theirs: dict[str, Tensor] = {}
    pre_norm, m2m = config.norm_order == "pre", config.positions == "fairseq"
    if pre_norm and not m2m:
        # Pegasus, unlike Marian, needs the positions.
        positions = sinusoids(config.max_length, config.d_model)[:, axis]
        theirs |= {f"model.{one}.embed_positions.weight": positions.clone() for one in _STACKS}
    for here, there in layers(config.encoder_layers, config.decoder_layers, pre_norm):
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
    if m2m:
        return theirs
    bias = ours.get("projection.bias", torch.zeros(config.target_vocab_size))
    bias = bias[list(target.rows)]
    # transformers itself bans the symbols that no translation has.
    bias[bias < NEVER_TRAINED] = 0.0
    theirs["final_logits_bias"] = bias[None]
    return theirs
