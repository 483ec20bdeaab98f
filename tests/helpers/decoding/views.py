"""Made-up attention views."""

from collections.abc import Sequence

import torch

from transformer.evaluation.attention_heads import AttentionKind, AttentionView, head_totals


def attention_view(
    source: Sequence[str],
    target: Sequence[str],
    *,
    layers: int = 2,
    heads: int = 3,
    text: str = "A man.",
) -> AttentionView:
    """Random weights over these tokens; the decoder is causal."""
    read, written = ["<s>", *target], [*target, "</s>"]
    keys = [*source, "</s>"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        kinds = [
            _kind("encoder", keys, keys, layers, heads),
            _kind("decoder", read, read, layers, heads),
            _kind("cross", written, keys, layers, heads),
        ]
    return AttentionView(
        source=text,
        target="Ein Mann.",
        forced=False,
        checkpoint="runs/x/best.ckpt",
        size="9 parameters",
        measured="1 sentence pair",
        sentences=1,
        kinds=kinds,
    )


def _kind(name: str, queries: list[str], keys: list[str], layers: int, heads: int) -> AttentionKind:
    visible = torch.ones(len(queries), len(keys), dtype=torch.bool)
    if name == "decoder":
        visible = visible.tril()
    scores = 3 * torch.randn(layers, heads, len(queries), len(keys))
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    separator = torch.tensor([[key == "</s>" for key in keys]])
    characters = [head_totals(w[None], visible[None], separator).characters() for w in weights]
    return AttentionKind(
        name=name,
        title={"cross": "Cross-attention"}.get(name, f"{name.title()} self-attention"),
        note="Rows and columns.",
        query_name="target" if name != "encoder" else "source",
        key_name="target" if name == "decoder" else "source",
        queries=queries,
        keys=keys,
        weights=weights,
        visible=visible,
        characters=characters,
    )
