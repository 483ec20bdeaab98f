"""Our weights in torch's own modules."""

import torch
from torch import nn

from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.residual import Residual
from transformer.model.transformer import Transformer


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """Torch keeps query, key and value in one matrix."""
    projections = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.data.copy_(torch.cat([p.weight for p in projections]))
    theirs.in_proj_bias.data.copy_(torch.cat([p.bias for p in projections]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_encoder_layer(ours: EncoderLayer, theirs: nn.TransformerEncoderLayer) -> None:
    copy_attention(ours.attention, theirs.self_attn)
    _copy_feed_forward(ours, theirs)
    _copy_norms((ours.attention_residual, ours.feed_forward_residual), theirs)


def copy_decoder_layer(ours: DecoderLayer, theirs: nn.TransformerDecoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_attention(ours.cross_attention, theirs.multihead_attn)
    _copy_feed_forward(ours, theirs)
    _copy_norms((ours.self_residual, ours.cross_residual, ours.feed_forward_residual), theirs)


def torch_transformer(ours: Transformer) -> nn.Transformer:
    """``nn.Transformer`` with the shape and the weights of ours, embeddings apart."""
    config = ours.config
    theirs = nn.Transformer(
        config.d_model,
        config.num_heads,
        config.encoder_layers,
        config.decoder_layers,
        config.ffn_dim,
        config.dropout,
        config.activation,
        batch_first=True,
        norm_first=config.norm_order == "pre",
    ).eval()
    for layer, twin in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
        copy_encoder_layer(layer, twin)
    for layer, twin in zip(ours.decoder.layers, theirs.decoder.layers, strict=True):
        copy_decoder_layer(layer, twin)
    for stack, twin in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        if config.norm_order == "pre":
            twin.norm.load_state_dict(stack.final_norm.state_dict())
        else:
            # torch closes every stack with a norm, the paper only its layers.
            twin.norm = None
    return theirs


def _copy_feed_forward(ours: EncoderLayer | DecoderLayer, theirs: nn.Module) -> None:
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())


def _copy_norms(residuals: tuple[Residual, ...], theirs: nn.Module) -> None:
    for number, residual in enumerate(residuals, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(residual.norm.state_dict())
