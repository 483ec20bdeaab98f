"""The architecture as plain values; ``conf/model`` has presets."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal

from transformer.common.schema import Range, Settings, different_fields
from transformer.settings.sources import FrontEndName

Size = Annotated[int, Range(1, below=2**31)]
Probability = Annotated[float, Range(0, below=1)]

PatternName = Literal["full", "sliding", "longformer", "bigbird"]
ActivationName = Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu", "geglu_tanh"]
Positions = Literal["sinusoidal", "fairseq", "learned", "rotary", "alibi", "relative"]
Precision = Literal["float32", "bfloat16", "int8"]
Frozen = Literal["embeddings", "encoder", "decoder", "norms", "output"]

OF_THE_TEXT = ("source_vocab_size", "target_vocab_size", "pad")
"""Fields of the model that are no keys of conf/model: the tokenizer decides them."""

PATTERN_KEYS = (
    "decoder_pattern",
    "global_tokens",
    "pattern",
    "pattern_seed",
    "random_block_size",
    "random_blocks",
    "window",
)
"""Settings of a model that decide which positions attend to which: no weights, but its outputs."""

_WITHOUT_WEIGHTS = frozenset(
    {
        *OF_THE_TEXT,
        *PATTERN_KEYS,
        "activation_dropout",
        "attention",
        "attention_dropout",
        "dropout",
        "layer_drop",
        "max_length",
        "sdpa_backend",
        "source_token_dropout",
        "target_token_dropout",
    }
)
"""Settings of a model that do not change its weights; the tokenizer has the sizes."""

LEARNING_KEYS = ("freeze", "lora_rank", "lora_alpha")
"""Keys of training only: a trained model does not need them, since its adapters are merged."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Settings, group="model"):
    """One encoder-decoder (Vaswani et al. 2017, section 3) and its published variants.

    ``conf/model/tiny.yaml`` has a line about each field; this is what does not fit there.

    Attributes:
        source_vocab_size, target_vocab_size: In a run the tokenizer sets them (`sized`); 0 until
            then. With a front end, that of the source is the numbers of one vector.
        front_end: What makes the input of the encoder from sources that are vectors
            (model/front_ends): ``whisper`` or ``s2t`` for sound, ``patches`` for pictures,
            ``linear`` for any; null reads tokens.
        class_token: ``patches`` begins with a trained vector (ViT).
        max_source_length: ``max_length`` of the encoder, if it is another.
        pad: Index of the padding symbol; its embedding starts at zero, padding is masked.
        num_kv_heads: Heads of keys and values; a group of query heads shares each (Ainslie et
            al. 2023). 1 is multi-query attention (Shazeer 2019); null is ``num_heads``.
        query_key_norm: Normalize each query and key by its root mean square, as in Gemma 3 and
            Qwen 3 (Henry et al. 2020 use the Euclidean norm); ``self`` only those of
            self-attention, as CTranslate2 can.
        source_token_dropout: Dropout of whole input tokens of the encoder, or of a single stack
            (Gal and Ghahramani 2016; Sennrich et al. 2016).
        layer_drop: Probability that a training step skips a layer (Fan et al. 2020).
        norm: ``layer`` (Ba et al. 2016) or ``rms`` (Zhang and Sennrich 2019).
        norm_epsilon: Added to the variance by ``norm=layer``.
        norm_order: ``post`` normalizes after the residual sum (the paper), ``pre`` before the
            sublayer (Xiong et al. 2020), ``sandwich`` before and after the sublayer (Ding et al.
            2021). ``pre`` and ``sandwich`` have one more norm at the end of each stack.
        positions: ``sinusoidal`` (the paper, section 3.5), ``fairseq`` (its sinusoids,
            positions/absolute.py) or ``learned`` vectors added to the embeddings; or, inside
            self-attention, ``rotary`` (Su et al. 2021), ``alibi`` (Press et al. 2022) or
            ``relative`` buckets (T5, Raffel et al. 2020).
        activation: Activation of the feed-forward block; ``swish`` is SiLU (Ramachandran et al.
            2017), ``swiglu`` and ``geglu`` are gated (Shazeer 2020). ``gelu_tanh`` and
            ``geglu_tanh`` have the approximation of Hendrycks and Gimpel 2016, section 2.
        convolution_window: Width of a gated convolution before the self-attention of each
            encoder layer (Gehring et al. 2017); null is no convolution.
        encoder_layer, decoder_layer, feed_forward: ``MODULE:CLASS``, a class that replaces ours:
            a subclass of `EncoderLayer`, of `DecoderLayer`, or an ``nn.Module`` like
            `FeedForward`. Constructor and call are the same as in our class; null is our class.
            ``decoder_layer=ssru`` has a recurrence in place of self-attention (Kim et al. 2019).
        share_layers: Modules that the layers of a stack share (ALBERT, Lan et al. 2020).
        tie_embeddings: ``decoder`` ties target embedding and output projection, ``all`` also ties
            the source embedding (Press and Wolf 2017), ``inputs`` ties both embeddings alone (T5
            1.1), ``none`` ties nothing.
        output_bias: Add a trained bias to the logits; ``fixed`` does not train it (an imported
            model that has none bans some symbols by it).
        embedding_norm: Normalize the embeddings, with their positions (BART, Lewis et al. 2020).
        decoder_start: Index of the first target symbol of the decoder; null is the beginning
            symbol (fairseq starts with the end symbol).

    Raises InputError if a value is out of its range, or two values contradict each other.
    """

    source_vocab_size: Annotated[int, Range(0, below=2**31)] = 0
    target_vocab_size: Annotated[int, Range(0, below=2**31)] = 0
    pad: Annotated[int, Range(0)] = 0
    front_end: FrontEndName | None = None
    class_token: bool = False
    d_model: Size = 128
    num_heads: Size = 4
    num_kv_heads: Size | None = None
    head_dim: Size | None = None
    query_key_norm: bool | Literal["self"] = False
    scale_scores: bool = True
    ffn_dim: Size = 256
    encoder_layers: Size = 4
    decoder_layers: Annotated[int, Range(0, below=2**31)] = 4
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    source_token_dropout: Probability = 0.0
    target_token_dropout: Probability = 0.0
    layer_drop: Probability = 0.0
    norm: Literal["layer", "rms"] = "layer"
    norm_epsilon: Annotated[float, Range(above=0, below=1)] = 1e-5
    norm_order: Literal["pre", "post", "sandwich"] = "pre"
    positions: Positions = "sinusoidal"
    max_length: Annotated[int, Range(1, 2**20)] = 1024
    max_source_length: Size | None = None
    relative_buckets: Annotated[int, Range(4, below=2**31)] = 32
    relative_max_distance: Size = 128
    activation: ActivationName = "relu"
    biases: bool = True
    share_layers: Literal["none", "all", "attention", "feed_forward"] = "none"
    tie_embeddings: Literal["none", "decoder", "inputs", "all"] = "all"
    attention: Literal["auto", "eager", "sdpa", "flex"] = "auto"
    sdpa_backend: Literal["any", "flash", "efficient", "cudnn", "math"] = "any"
    pattern: PatternName = "full"
    decoder_pattern: PatternName | None = None
    window: Size = 64
    global_tokens: Size = 1
    random_blocks: Size = 2
    random_block_size: Size = 16
    pattern_seed: int = 1
    convolution_window: Size | None = None
    encoder_layer: str | None = None
    decoder_layer: str | None = None
    feed_forward: str | None = None
    output_bias: bool | Literal["fixed"] = False
    freeze: Sequence[Frozen] = ()
    lora_rank: Annotated[int, Range(0, below=2**31)] = 0
    lora_alpha: Annotated[float, Range(above=0, below=math.inf)] = 16.0
    decoder_start: Annotated[int, Range(0)] | None = None
    scale_embedding: bool = True
    scale_output: bool = False
    embedding_norm: bool = False

    def _objections(self) -> Iterator[str]:
        return _contradictions(self)

    @property
    def d_k(self) -> int:
        return self.head_dim or self.d_model // self.num_heads

    @property
    def source_positions(self) -> int:
        """``max_length`` of the encoder."""
        return self.max_source_length or self.max_length

    @property
    def has_own_layers(self) -> bool:
        """Whether a class of the user, ``MODULE:CLASS``, replaces one of ours."""
        names = (self.encoder_layer, self.decoder_layer, self.feed_forward)
        return any(":" in name for name in names if name is not None)

    @property
    def output_scale(self) -> float:
        return self.d_model**-0.5 if self.scale_output else 1.0

    def sized(self, source_vocab_size: int, target_vocab_size: int) -> "ModelConfig":
        """The same model with these vocabularies; raises InputError if it cannot have them."""
        return replace(
            self, source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"freeze": list(self.freeze)}


def _contradictions(config: ModelConfig) -> Iterator[str]:
    heads = f"model.num_heads={config.num_heads}"
    width = f"model.d_model={config.d_model}"
    if config.head_dim is None and config.d_model % config.num_heads:
        yield f"{width} is not a multiple of {heads}; choose a multiple, or set model.head_dim"
    if config.num_kv_heads is not None and config.num_heads % config.num_kv_heads:
        yield f"model.num_kv_heads={config.num_kv_heads} does not divide {heads}"
    yield from _bad_positions(config, width)
    vocabularies = [config.source_vocab_size, config.target_vocab_size]
    if config.front_end is not None:
        vocabularies = vocabularies[1:]
    if all(vocabularies) and config.pad >= min(vocabularies):
        yield f"model.pad={config.pad} is outside of a vocabulary"
    yield from _bad_front_end(config)
    if config.sdpa_backend != "any" and config.attention != "sdpa":
        yield (
            f"model.sdpa_backend={config.sdpa_backend} is a kernel of model.attention=sdpa, "
            f"not of {config.attention}"
        )
    if config.attention == "flex" and config.attention_dropout:
        yield "model.attention=flex drops no weights; set model.attention_dropout=0, or choose sdpa"
    if config.encoder_layer is not None and config.convolution_window is not None:
        yield "model.encoder_layer has no convolution of ours; set model.convolution_window=null"
    if config.decoder_layer == "ssru" and (
        config.decoder_pattern or config.positions == "relative"
    ):
        yield (
            "model.decoder_layer=ssru has no self-attention for model.decoder_pattern or "
            "model.positions=relative; leave them out"
        )
    tied_inputs = config.tie_embeddings in ("all", "inputs")
    if tied_inputs and config.source_vocab_size != config.target_vocab_size:
        yield (
            f"model.tie_embeddings={config.tie_embeddings} needs one vocabulary for both sides; "
            "set tokenizer.joint=true or model.tie_embeddings=decoder"
        )


def _bad_front_end(config: ModelConfig) -> Iterator[str]:
    if config.front_end is not None and config.tie_embeddings in ("all", "inputs"):
        yield (
            f"model.tie_embeddings={config.tie_embeddings}: a source of vectors has no embeddings; "
            "set model.tie_embeddings=decoder"
        )
    if config.front_end is not None and config.source_token_dropout:
        yield "model.source_token_dropout drops tokens; a source of vectors has none, set it to 0"
    if config.class_token and config.front_end != "patches":
        yield "model.class_token begins patches; set model.front_end=patches, or leave it out"


def _bad_positions(config: ModelConfig, width: str) -> Iterator[str]:
    least = {"sinusoidal": 2, "fairseq": 4}.get(config.positions)
    if least is not None and (config.d_model % 2 or config.d_model < least):
        yield f"{width} must be even, and at least {least}, for {config.positions} positions"
    if config.positions == "rotary" and config.d_k % 2:
        yield f"a head of width {config.d_k} must be even for rotary positions, which turn pairs"
    if config.positions == "relative":
        buckets = f"model.relative_buckets={config.relative_buckets}"
        if config.relative_buckets % 4:
            yield f"{buckets} must be a multiple of 4: near and far, in two directions"
        if config.relative_max_distance <= config.relative_buckets // 2:
            yield (
                f"model.relative_max_distance={config.relative_max_distance} must be more than "
                f"half of {buckets}, or no bucket is left for far keys"
            )


def other_weights(before: ModelConfig, now: ModelConfig) -> list[str]:
    """Keys of a model that differ and need other weights; null is the value that it stands for."""
    return [
        key
        for key in different_fields(_explicit(before), _explicit(now))
        if key in weight_keys(now) and getattr(before, key) != getattr(now, key)
    ]


def weight_keys(model: ModelConfig) -> list[str]:
    """The keys of a model that decide which weights it has, and what they mean."""
    without = set(_WITHOUT_WEIGHTS)
    if model.positions == "learned":
        without.remove("max_length")
    if model.positions != "relative":
        without |= {"relative_buckets", "relative_max_distance"}
    return [field.name for field in fields(model) if field.name not in without]


def _explicit(model: ModelConfig) -> ModelConfig:
    return replace(model, head_dim=model.d_k, num_kv_heads=model.num_kv_heads or model.num_heads)
