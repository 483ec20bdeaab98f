"""The architecture as plain values: what a checkpoint stores and ``build_transformer`` reads.

It does not know how the values are chosen; presets live in ``conf/model``.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from transformer.common.errors import raise_objections

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
        validate_model_config(self)

    @property
    def d_k(self) -> int:
        """Width of one head."""
        return self.head_dim or self.d_model // self.num_heads

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the checkpoint."""
        return asdict(self)


def validate_model_config(config: ModelConfig) -> None:
    """Raise what there is to object to; what follows from a wrong value alone is left out.

    Raises:
        InputError: A value is unknown or out of its range, or two contradict each other.
    """
    for objections in (_choices, _ranges, _heads, _positions, _kernel, _embeddings):
        raise_objections(objections(config))


def _choices(config: ModelConfig) -> Iterator[str]:
    hints = get_type_hints(type(config))
    for name in (field.name for field in fields(config)):
        options = [hint for hint in (hints[name], *get_args(hints[name])) if _is_choice(hint)]
        value = getattr(config, name)
        if options and value is not None and value not in get_args(options[0]):
            yield f"model.{name}={value} is unknown; choose {' or '.join(get_args(options[0]))}"


def _is_choice(hint: object) -> bool:
    return get_origin(hint) is Literal


def _ranges(config: ModelConfig) -> Iterator[str]:
    least = {
        **dict.fromkeys(("d_model", "num_heads", "num_kv_heads", "head_dim", "ffn_dim"), 1),
        **{"encoder_layers": 1, "decoder_layers": 0, "max_length": 1},
        **_used_by_patterns(config),
    }
    for name, smallest in least.items():
        value = getattr(config, name)
        if value is not None and value < smallest:
            yield f"model.{name}={value} must be at least {smallest}"
        if value is not None and value >= 2**31:
            yield f"model.{name}={value} must be below {2**31}"
    if "strided" in _patterns(config) and config.window == 1:
        yield "model.window=1 lets model.pattern=strided see everything; take 2 or more, or full"
    token_dropouts = ("source_token_dropout", "target_token_dropout")
    dropouts = ("dropout", "attention_dropout", "activation_dropout", *token_dropouts)
    for name in (*dropouts, "layer_drop"):
        if not 0 <= getattr(config, name) < 1:
            yield f"model.{name}={getattr(config, name)} must be in [0, 1)"


def _patterns(config: ModelConfig) -> set[str]:
    return {config.pattern, config.decoder_pattern or config.pattern}


def _used_by_patterns(config: ModelConfig) -> dict[str, int]:
    """The least values of what the patterns read."""
    least = {"window": 1} if _patterns(config) != {"full"} else {}
    if _patterns(config) & {"longformer", "bigbird"}:
        least["global_tokens"] = 1
    if "bigbird" in _patterns(config):
        least |= {"random_blocks": 1, "random_block_size": 1}
    return least


def _heads(config: ModelConfig) -> Iterator[str]:
    if config.head_dim is None and config.d_model % config.num_heads:
        yield (
            f"model.d_model={config.d_model} is not a multiple of model.num_heads="
            f"{config.num_heads}; the heads share the width equally, unless model.head_dim is set"
        )
    if config.num_kv_heads is not None and config.num_heads % config.num_kv_heads:
        yield (
            f"model.num_kv_heads={config.num_kv_heads} does not divide model.num_heads="
            f"{config.num_heads}; each head of keys serves equally many heads of queries"
        )


def _positions(config: ModelConfig) -> Iterator[str]:
    if config.positions == "sinusoidal" and config.d_model % 2:
        yield f"model.d_model={config.d_model} must be even for sinusoidal positions"
    if config.positions == "rotary" and config.d_k % 2:
        yield f"a head of width {config.d_k} must be even for rotary positions, which turn pairs"
    if config.positions == "relative":
        if config.relative_buckets < 4 or config.relative_buckets % 4:
            yield (
                f"model.relative_buckets={config.relative_buckets} must be a multiple of 4: two "
                "directions, and in each near and far"
            )
        if config.relative_max_distance <= config.relative_buckets // 2:
            yield (
                f"model.relative_max_distance={config.relative_max_distance} must be more than "
                f"half of model.relative_buckets={config.relative_buckets}, or no bucket is left "
                "for what is far"
            )


def _kernel(config: ModelConfig) -> Iterator[str]:
    if config.sdpa_backend != "any" and config.attention != "sdpa":
        yield (
            f"model.sdpa_backend={config.sdpa_backend} is a kernel of model.attention=sdpa, "
            f"not of {config.attention}"
        )
    if config.attention == "flex" and config.attention_dropout:
        yield (
            f"model.attention=flex drops no weights; set model.attention_dropout=0, not "
            f"{config.attention_dropout}, or choose sdpa"
        )


def _embeddings(config: ModelConfig) -> Iterator[str]:
    if config.tie_embeddings == "all" and config.source_vocab_size != config.target_vocab_size:
        yield (
            "model.tie_embeddings=all needs one vocabulary for both sides; "
            "set tokenizer.joint=true or model.tie_embeddings=decoder"
        )
