"""The names of our modules in each architecture of transformers; ``*`` is the number of a layer.

A name that ends with a weight is that of a single tensor. Source: transformers 5,
``models/*/modeling_*.py``.
"""

from collections.abc import Iterator, Mapping

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
        here, there = f"{stack}.layers.*", f"model.{stack}.layers.*"
        for (attention, residual), other in zip(attentions, ("self", "encoder"), strict=False):
            for part in ("query", "key", "value"):
                names[f"{here}.{attention}.{part}"] = f"{there}.{other}_attn.{part[0]}_proj"
            names[f"{here}.{attention}.output"] = f"{there}.{other}_attn.out_proj"
            names[f"{here}.{residual}.norm"] = f"{there}.{other}_attn_layer_norm"
        # In a decoder of Marian, a recurrence may stand in place of the self-attention.
        names["decoder.layers.*.self_attention.forget"] = "model.decoder.layers.*.self_attn.forget"
        side = "source" if stack == "encoder" else "target"
        names |= {
            f"{here}.feed_forward.inner": f"{there}.fc1",
            f"{here}.feed_forward.outer": f"{there}.fc2",
            f"{here}.feed_forward_residual.norm": f"{there}.final_layer_norm",
            f"{stack}.final_norm": f"model.{stack}.layer_norm",
            f"{side}_embedding.norm": f"model.{stack}.layernorm_embedding",
            f"{side}_embedding.positions.table": f"model.{stack}.embed_positions.weight",
        }
    return names


def _t5() -> dict[str, str]:
    names = {}
    for stack, attentions in _STACKS.items():
        here, there = f"{stack}.layers.*", f"{stack}.block.*.layer"
        named = zip(attentions, ("SelfAttention", "EncDecAttention"), strict=False)
        for index, ((attention, residual), other) in enumerate(named):
            for part in ("query", "key", "value", "output"):
                names[f"{here}.{attention}.{part}"] = f"{there}.{index}.{other}.{part[0]}"
            names[f"{here}.{residual}.norm"] = f"{there}.{index}.layer_norm"
        block = f"{there}.{len(attentions)}"
        for part, other in {"gate": "wi_0", "inner": "wi_1", "outer": "wo"}.items():
            names[f"{here}.feed_forward.{part}"] = f"{block}.DenseReluDense.{other}"
        names[f"{here}.feed_forward_residual.norm"] = f"{block}.layer_norm"
        names[f"{stack}.final_norm"] = f"{stack}.final_layer_norm"
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        names[f"{stack}.attention_context.bias.table"] = bias
    return names


FAIRSEQ, T5 = _fairseq(), _t5()
"""The names in Marian, Pegasus, M2M-100, BART, mBART and Blenderbot, and those in T5 and its kin; a
model has those of its settings."""


def layer_names(
    modules: Mapping[str, str], encoder_layers: int, decoder_layers: int, *, gated: bool = False
) -> Iterator[tuple[str, str]]:
    """Each module of a model: our name, and that in transformers."""
    for here, there in modules.items():
        depth = encoder_layers if here.startswith("encoder") else decoder_layers
        if not gated:
            there = there.replace(".wi_1", ".wi")
        for number in range(depth if "*" in here else 1):
            yield here.replace("*", str(number)), there.replace("*", str(number))
