"""``config.json`` of transformers 5 (``configuration_*.py``) as our settings, and back."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from transformer.common.errors import raise_objections
from transformer.common.schema import Range
from transformer.settings.model import ModelConfig

Kind = Literal["marian", "pegasus", "m2m_100", "bart", "mbart", "blenderbot", "t5", "mt5"]
"""Values of ``model_type`` in a ``config.json``; Pegasus with the tokenizer of Marian."""

Width = Annotated[int, Range(2, 2**16)]
Depth = Annotated[int, Range(1, 1000)]
Heads = Annotated[int, Range(1, 2**16)]
Inner = Annotated[int, Range(1, 2**20)]
Count = Annotated[int, Range(0, 10_000)]

_SAME = "d_model encoder_layers decoder_layers dropout attention_dropout activation_dropout"


@dataclass(frozen=True, kw_only=True)
class _Config:
    model_type: Kind
    d_model: Width
    num_beams: Depth = 1
    length_penalty: Annotated[float, Range(-100, 100)] = 1.0
    no_repeat_ngram_size: Count = 0
    min_length: Count = 0


@dataclass(frozen=True, kw_only=True)
class FairseqConfig(_Config):
    """Settings of Marian, Pegasus, M2M-100, BART, mBART and Blenderbot."""

    NAMES: ClassVar[dict[str, tuple[str, ...]]] = {
        # Our settings, and their names there: an import reads the first, an export writes all.
        **{name: (name,) for name in _SAME.split()},
        "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
        "ffn_dim": ("encoder_ffn_dim", "decoder_ffn_dim"),
        "layer_drop": ("encoder_layerdrop", "decoder_layerdrop"),
        "max_length": ("max_position_embeddings",),
        "scale_embedding": ("scale_embedding",),
    }
    ACTIVATIONS: ClassVar[tuple[str, dict[str, Any]]] = (
        "activation_function",
        {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "swish"}
        | {"swish": "swish"},
    )

    encoder_layers: Depth
    decoder_layers: Depth
    encoder_attention_heads: Heads
    decoder_attention_heads: Heads
    encoder_ffn_dim: Inner
    decoder_ffn_dim: Inner
    activation_function: Literal["swish", "silu", "relu", "gelu", "gelu_new"]
    max_position_embeddings: Annotated[int, Range(1, 2**20)]
    scale_embedding: bool = False
    normalize_before: bool | None = None
    normalize_embedding: bool | None = None
    tie_word_embeddings: Literal[True] = True
    share_encoder_decoder_embeddings: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    encoder_layerdrop: float = 0.0
    num_beams: Depth = 4

    def __post_init__(self) -> None:
        objections = [
            f"encoder_{part} and decoder_{part} differ; they must be the same"
            for part in ("attention_heads", "ffn_dim")
            if getattr(self, f"encoder_{part}") != getattr(self, f"decoder_{part}")
        ]
        odd = [f"config.json.d_model={self.d_model} must be even"] if self.d_model % 2 else []
        raise_objections(objections + odd)


@dataclass(frozen=True, kw_only=True)
class T5Config(_Config):
    """Settings of T5 1.0 and 1.1, FLAN-T5, mT5, ByT5 and MADLAD-400."""

    NAMES: ClassVar[dict[str, tuple[str, ...]]] = {
        **{name: (name,) for name in ("d_model", "num_heads")},
        "head_dim": ("d_kv",),
        "ffn_dim": ("d_ff",),
        "encoder_layers": ("num_layers",),
        "decoder_layers": ("num_decoder_layers",),
        "relative_buckets": ("relative_attention_num_buckets",),
        "relative_max_distance": ("relative_attention_max_distance",),
        "max_length": ("n_positions",),
        **dict.fromkeys(("attention_dropout", "activation_dropout", "dropout"), ("dropout_rate",)),
    }
    ACTIVATIONS: ClassVar[tuple[str, dict[str, Any]]] = (
        "feed_forward_proj",
        # With a gate, T5 means the approximation of GELU.
        {"relu": "relu", "gelu": "gelu", "gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}
        | {"gelu_new": "gelu_tanh"},
    )

    d_kv: Width
    d_ff: Inner
    num_layers: Depth
    num_heads: Heads
    num_decoder_layers: Depth | None = None
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    feed_forward_proj: Literal["relu", "gelu", "gelu_new", "gated-gelu", "gated-silu"] = "relu"
    layer_norm_epsilon: Annotated[float, Range(1e-6, 1e-6)] = 1e-6
    n_positions: Annotated[int, Range(1, 2**20)] = 512
    dropout_rate: float = 0.1
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        if self.num_decoder_layers is None:
            object.__setattr__(self, "num_decoder_layers", self.num_layers)


ConfigFile = FairseqConfig | T5Config
"""The values of a ``config.json`` that decide what a model computes."""


def settings(config: ConfigFile) -> dict[str, Any]:
    """The keys under ``model.`` that a ``config.json`` has, without those of its architecture."""
    key, activations = config.ACTIVATIONS
    found = {ours: getattr(config, names[0]) for ours, names in config.NAMES.items()}
    return {**found, "activation": activations[getattr(config, key)]}


def values(kind: type[ConfigFile], config: ModelConfig) -> dict[str, Any]:
    """The values of a ``config.json`` of this kind for a model."""
    key, activations = kind.ACTIVATIONS
    found = {name: getattr(config, ours) for ours, names in kind.NAMES.items() for name in names}
    return {**found, key: {ours: name for name, ours in activations.items()}[config.activation]}
