"""The architecture as plain values: what a checkpoint stores and ``build_transformer`` reads.

It does not know how the values are chosen; presets live in ``conf/model``.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from transformer.errors import InputError

NormOrder = Literal["pre", "post"]
Positions = Literal["sinusoidal", "learned"]
Activation = Literal["relu", "gelu"]
TieEmbeddings = Literal["none", "decoder", "all"]
AttentionKernel = Literal["eager", "sdpa"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "norm_order": ("pre", "post"),
    "positions": ("sinusoidal", "learned"),
    "activation": ("relu", "gelu"),
    "tie_embeddings": ("none", "decoder", "all"),
    "attention": ("eager", "sdpa"),
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One encoder-decoder (Vaswani et al. 2017, section 3).

    Attributes:
        source_vocab_size: Rows of the source embedding.
        target_vocab_size: Rows of the target embedding and width of the logits.
        pad: Index of the padding symbol; its embedding is zero and its positions are masked.
        d_model: Width of the residual stream.
        num_heads: Attention heads; each is ``d_model / num_heads`` wide.
        ffn_dim: Inner width of the feed-forward block.
        encoder_layers: Depth of the encoder.
        decoder_layers: Depth of the decoder.
        dropout: On the embeddings and on each sublayer's output, before the residual sum.
        attention_dropout: On the attention weights.
        activation_dropout: Inside the feed-forward block, after the activation.
        norm_order: ``post`` normalises after the residual sum (the paper), ``pre`` before the
            sublayer (Xiong et al. 2020), with one more norm at the end of each stack.
        positions: ``sinusoidal`` (the paper, section 3.5) or ``learned``.
        max_length: Learned positions that exist, sinusoidal ones that are computed ahead; the
            translator cuts longer text into segments.
        activation: Of the feed-forward block.
        tie_embeddings: ``decoder`` shares the target embedding with the output projection,
            ``all`` the source embedding too (Press and Wolf 2017), ``none`` nothing.
        attention: ``sdpa`` is torch's fused kernel, ``eager`` the plain formula.

    Raises:
        InputError: A value is unknown or the values contradict each other.
    """

    source_vocab_size: int
    target_vocab_size: int
    pad: int
    d_model: int
    num_heads: int
    ffn_dim: int
    encoder_layers: int
    decoder_layers: int
    dropout: float
    attention_dropout: float
    activation_dropout: float
    norm_order: NormOrder
    positions: Positions
    max_length: int
    activation: Activation
    tie_embeddings: TieEmbeddings
    attention: AttentionKernel

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(
                    f"model.{name}={getattr(self, name)} is unknown; choose {' or '.join(choices)}"
                )
        for name in ("d_model", "num_heads", "ffn_dim", "encoder_layers", "decoder_layers"):
            if getattr(self, name) < 1:
                raise InputError(f"model.{name}={getattr(self, name)} must be at least 1")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"model.{name}={getattr(self, name)} must be in [0, 1)")
        if self.d_model % self.num_heads:
            raise InputError(
                f"model.d_model={self.d_model} is not a multiple of "
                f"model.num_heads={self.num_heads}; the heads share the width equally"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise InputError(f"model.d_model={self.d_model} must be even for sinusoidal positions")
        if self.tie_embeddings == "all" and self.source_vocab_size != self.target_vocab_size:
            raise InputError(
                "model.tie_embeddings=all needs one vocabulary for both sides; "
                "set tokenizer.joint=true or model.tie_embeddings=decoder"
            )

    @property
    def head_dim(self) -> int:
        """Width of one head: ``d_k = d_model / num_heads``."""
        return self.d_model // self.num_heads

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the checkpoint."""
        return asdict(self)
