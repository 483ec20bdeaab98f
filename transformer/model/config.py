"""The architecture as plain values: what a checkpoint stores and ``build_transformer`` reads.

It does not know how the values are chosen; presets live in ``conf/model``. Which values go
together is said in meaning.py.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from transformer.model.meaning import refuse_meaningless

AttentionKernel = Literal["auto", "eager", "sdpa", "flex"]
SdpaBackend = Literal["any", "flash", "efficient", "cudnn", "math"]
PatternName = Literal["full", "sliding", "longformer", "bigbird", "strided"]
Positions = Literal["sinusoidal", "learned", "rotary", "alibi", "relative"]
Norm = Literal["layer", "rms"]
NormOrder = Literal["pre", "post", "deepnorm", "sandwich"]
ActivationName = Literal["relu", "gelu", "swiglu", "geglu"]
ShareLayers = Literal["none", "all", "attention", "feed_forward"]
TieEmbeddings = Literal["none", "decoder", "all"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One encoder-decoder (Vaswani et al. 2017, section 3) and its published variants.

    Attributes:
        source_vocab_size: Rows of the source embedding.
        target_vocab_size: Rows of the target embedding and width of the logits.
        pad: Index of the padding symbol; its embedding begins as zero, its positions are masked.
        d_model: Width of the residual stream.
        num_heads: Attention heads.
        num_kv_heads: Heads of keys and values, each shared by a group of query heads (Ainslie et
            al. 2023); 1 is multi-query attention (Shazeer 2019), null one for each head.
        head_dim: Width of one head; null is ``d_model / num_heads``.
        query_key_norm: Normalise each query and key by its root mean square (Henry et al. 2020
            by the Euclidean norm; so in Gemma 3 and Qwen 3).
        ffn_dim: Inner width of the feed-forward block.
        encoder_layers: Depth of the encoder.
        decoder_layers: Depth of the decoder; 0 for an encoder alone.
        dropout: On the embeddings and on each sublayer's output, before the residual sum.
        attention_dropout: On the attention weights.
        activation_dropout: Inside the feed-forward block, after the activation.
        source_token_dropout: Of whole tokens that the encoder reads, or a stack alone (Gal and
            Ghahramani 2016; Sennrich et al. 2016).
        target_token_dropout: Likewise, of those that the decoder reads.
        layer_drop: Probability with which a layer is left out of a training step (Fan et al. 2020).
        norm: ``layer`` (Ba et al. 2016) or ``rms`` (Zhang and Sennrich 2019).
        norm_order: ``post`` normalises after the residual sum (the paper), ``pre`` before the
            sublayer (Xiong et al. 2020), with one more norm at the end of each stack;
            ``sandwich`` before and after it (Ding et al. 2021); ``deepnorm`` is ``post`` with a
            weighted sum and a smaller start (Wang et al. 2022).
        positions: ``sinusoidal`` (the paper, section 3.5) or ``learned`` vectors added to the
            embeddings; or, inside self-attention, ``rotary`` (Su et al. 2021), ``alibi`` (Press
            et al. 2022) or ``relative`` buckets (T5, Raffel et al. 2020).
        max_length: Learned positions that exist, sinusoidal ones that are computed ahead; the
            translator cuts longer text into segments.
        relative_buckets: Of ``positions=relative``.
        relative_max_distance: From here on all distances share a bucket.
        activation: Of the feed-forward block; ``swiglu`` and ``geglu`` are gated (Shazeer 2020).
        share_layers: What the layers of a stack have in common (ALBERT, Lan et al. 2020).
        tie_embeddings: ``decoder`` shares the target embedding with the output projection,
            ``all`` the source embedding too (Press and Wolf 2017), ``none`` nothing.
        attention: The kernel. ``eager`` is the formula, ``sdpa`` torch's fused kernel, ``flex``
            computes only the blocks that a pattern allows, ``auto`` takes the faster one.
        sdpa_backend: Force one of torch's fused kernels; ``any`` lets torch choose.
        pattern: Who may see whom in self-attention (``patterns.py``).
        decoder_pattern: The same for the decoder alone; null is ``pattern``. Both read the keys
            that follow.
        window: Positions on each side in all sparse patterns; the stride of ``strided``.
        global_tokens: First positions that see all (longformer, bigbird).
        random_blocks: Random links of each block (bigbird).
        random_block_size: Positions of such a block.
        pattern_seed: Of the random links.

    Raises:
        InputError: A value is unknown or the values contradict each other.
    """

    source_vocab_size: int
    target_vocab_size: int
    pad: int
    d_model: int
    num_heads: int
    num_kv_heads: int | None
    head_dim: int | None
    query_key_norm: bool
    ffn_dim: int
    encoder_layers: int
    decoder_layers: int
    dropout: float
    attention_dropout: float
    activation_dropout: float
    source_token_dropout: float
    target_token_dropout: float
    layer_drop: float
    norm: Norm
    norm_order: NormOrder
    positions: Positions
    max_length: int
    relative_buckets: int
    relative_max_distance: int
    activation: ActivationName
    share_layers: ShareLayers
    tie_embeddings: TieEmbeddings
    attention: AttentionKernel
    sdpa_backend: SdpaBackend
    pattern: PatternName
    decoder_pattern: PatternName | None
    window: int
    global_tokens: int
    random_blocks: int
    random_block_size: int
    pattern_seed: int

    def __post_init__(self) -> None:
        refuse_meaningless(self)

    @property
    def d_k(self) -> int:
        """Width of one head."""
        return self.head_dim or self.d_model // self.num_heads

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the checkpoint."""
        return asdict(self)
