"""The architectures of transformers that can be imported and exported, and their ``config.json``.

A new architecture is an entry of ARCHITECTURES: the values of our settings that its models have,
the names of its settings (FairseqConfig, T5Config) and modules (``weights.py``), and the module of
its tokenizer. CONTRIBUTING.md adds one step by step. Source: transformers 5, ``models/`` and
``configuration_*.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, typed, typed_value
from transformer.interchange.architectures import bart, m2m, marian, mbart, t5, whisper
from transformer.interchange.architectures.subwords import ExportedIds
from transformer.interchange.verification import Values
from transformer.settings.model import ModelConfig
from transformer.settings.sources import STRIDES
from transformer.settings.tokenizer import BOS, EOS

Kind = Literal[
    "marian", "pegasus", "m2m_100", "bart", "mbart", "blenderbot", "t5", "mt5", "whisper"
]
"""Values of ``model_type`` in a ``config.json``; Pegasus with the tokenizer of Marian."""

Width = Annotated[int, Range(2, 2**16)]
Depth = Annotated[int, Range(1, 1000)]
Heads = Annotated[int, Range(1, 2**16)]
Inner = Annotated[int, Range(1, 2**20)]
Count = Annotated[int, Range(0, 10_000)]


@dataclass(frozen=True, kw_only=True)
class _Config:
    model_type: Kind
    d_model: Width
    num_beams: Depth = 1
    length_penalty: Annotated[float, Range(-100, 100)] = 1.0
    no_repeat_ngram_size: Count = 0
    min_length: Count = 0
    early_stopping: bool | Literal["never"] = False


def _other_decoder(config: Any) -> list[str]:
    """Objections to a decoder with other heads or widths than the encoder."""
    return [
        f"encoder_{part} and decoder_{part} differ; they must be the same"
        for part in ("attention_heads", "ffn_dim")
        if getattr(config, f"encoder_{part}") != getattr(config, f"decoder_{part}")
    ]


@dataclass(frozen=True, kw_only=True)
class FairseqConfig(_Config):
    """Settings of Marian, Pegasus, M2M-100, BART, mBART and Blenderbot.

    NAMES leads from our settings to theirs: an import reads the first name, an export writes all.
    """

    NAMES: ClassVar[dict[str, tuple[str, ...]]] = {
        "d_model": ("d_model",),
        "encoder_layers": ("encoder_layers",),
        "decoder_layers": ("decoder_layers",),
        "dropout": ("dropout",),
        "attention_dropout": ("attention_dropout",),
        "activation_dropout": ("activation_dropout",),
        "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
        "ffn_dim": ("encoder_ffn_dim", "decoder_ffn_dim"),
        "layer_drop": ("encoder_layerdrop", "decoder_layerdrop"),
        "max_length": ("max_position_embeddings",),
        "scale_embedding": ("scale_embedding",),
    }
    ACTIVATION_KEY: ClassVar[str] = "activation_function"
    ACTIVATIONS: ClassVar[dict[str, str]] = {
        "relu": "relu",
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "silu": "swish",
        "swish": "swish",
    }

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
        objections = _other_decoder(self)
        if self.d_model % 2:
            objections.append(f"config.json.d_model={self.d_model} must be even")
        raise_objections(objections)


@dataclass(frozen=True, kw_only=True)
class T5Config(_Config):
    """Settings of T5 1.0 and 1.1, FLAN-T5, mT5, ByT5 and MADLAD-400; NAMES as FairseqConfig's."""

    NAMES: ClassVar[dict[str, tuple[str, ...]]] = {
        "d_model": ("d_model",),
        "num_heads": ("num_heads",),
        "head_dim": ("d_kv",),
        "ffn_dim": ("d_ff",),
        "encoder_layers": ("num_layers",),
        "decoder_layers": ("num_decoder_layers",),
        "relative_buckets": ("relative_attention_num_buckets",),
        "relative_max_distance": ("relative_attention_max_distance",),
        "max_length": ("n_positions",),
        "attention_dropout": ("dropout_rate",),
        "activation_dropout": ("dropout_rate",),
        "dropout": ("dropout_rate",),
    }
    ACTIVATION_KEY: ClassVar[str] = "feed_forward_proj"
    ACTIVATIONS: ClassVar[dict[str, str]] = {
        "relu": "relu",
        "gelu": "gelu",
        # With a gate, T5 means the approximation of GELU.
        "gated-gelu": "geglu_tanh",
        "gated-silu": "swiglu",
        "gelu_new": "gelu_tanh",
    }

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


@dataclass(frozen=True, kw_only=True)
class WhisperConfig(_Config):
    """Settings of Whisper; NAMES as FairseqConfig's."""

    NAMES: ClassVar[dict[str, tuple[str, ...]]] = {
        **FairseqConfig.NAMES,
        "max_length": ("max_target_positions",),
        "max_source_length": ("max_source_positions",),
    }
    ACTIVATION_KEY: ClassVar[str] = "activation_function"
    ACTIVATIONS: ClassVar[dict[str, str]] = FairseqConfig.ACTIVATIONS

    encoder_layers: Depth
    decoder_layers: Depth
    encoder_attention_heads: Heads
    decoder_attention_heads: Heads
    encoder_ffn_dim: Inner
    decoder_ffn_dim: Inner
    activation_function: Literal["gelu"] = "gelu"
    max_source_positions: Annotated[int, Range(1, 2**20)] = 1500
    max_target_positions: Annotated[int, Range(8, 2**20)] = 448
    scale_embedding: bool = False
    tie_word_embeddings: Literal[True] = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    encoder_layerdrop: float = 0.0

    def __post_init__(self) -> None:
        raise_objections(_other_decoder(self))


ConfigFile = FairseqConfig | T5Config | WhisperConfig
"""The values of a ``config.json`` that decide what a model computes."""


class Architecture(NamedTuple):
    """The properties of the models of a class of transformers.

    Attributes:
        model_type: Its name in a ``config.json``.
        class_name: Its class.
        has: Values of settings under ``model.`` that its models have; the first is the usual one.
        files: The module with the ``import_tokenizer`` and ``export_tokenizer`` of its folders.
        tokenizers: Values of ``tokenizer.algorithm`` that it writes.
        position_offset: Number of unused learned positions, before the others.
        config: The settings of its ``config.json``.
    """

    model_type: Kind
    class_name: str
    has: Values
    files: ModuleType
    tokenizers: tuple[str, ...] = ("unigram", "bpe", "sentencepiece")
    position_offset: int = 0
    config: type[ConfigFile] = FairseqConfig

    @property
    def start(self) -> int:
        """Our id of the first symbol of the decoder."""
        start: int = self.has["decoder_start"][0] or BOS
        return start

    @property
    def prefix(self) -> str:
        """The start of the names of its embeddings."""
        return "" if self.config is T5Config else "model."

    @property
    def halves(self) -> bool:
        """Whether positions have all sines before all cosines."""
        return self.has["positions"][0] in ("sinusoidal", "fairseq")

    @property
    def output_bias(self) -> bool | Literal["fixed"]:
        """Whether there is a ``final_logits_bias``, and whether it learns."""
        positions = self.has["positions"][0]
        if self.config is WhisperConfig:
            return False
        return "fixed" if positions == "learned" else positions == "sinusoidal"

    @property
    def tags_both_sides(self) -> bool:
        """Whether source and target begin with their languages."""
        return self.files in (m2m, mbart, whisper)


_PLAIN: Values = {
    "norm": ("layer",),
    "activation": ("relu", "gelu", "gelu_tanh", "swish"),
    "biases": (True,),
    "scale_scores": (True,),
    "scale_embedding": (True,),
    "scale_output": (False,),
    "embedding_norm": (False,),
    "positions": ("sinusoidal",),
    "decoder_start": (None,),
    "tie_embeddings": ("all",),
    "norm_order": ("pre",),
}
_MARIAN: Values = {**_PLAIN, "norm_order": ("post",), "tie_embeddings": ("all", "decoder")}
_M2M: Values = {**_PLAIN, "positions": ("fairseq",), "decoder_start": (EOS,)}
_LEARNED: Values = {**_PLAIN, "positions": ("learned",), "scale_embedding": (True, False)}
_MBART: Values = {**_LEARNED, "decoder_start": (EOS,), "embedding_norm": (True,)}
_BART: Values = {**_MBART, "norm_order": ("post",)}
_T5: Values = {
    **_PLAIN,
    "norm": ("rms",),
    "activation": ("relu", "gelu", "gelu_tanh", "geglu_tanh", "swiglu"),
    "biases": (False,),
    "scale_scores": (False,),
    "scale_embedding": (False,),
    "scale_output": (False, True),
    "positions": ("relative",),
    "tie_embeddings": ("all", "inputs"),
}
_WHISPER: Values = {
    **_LEARNED,
    "activation": ("gelu",),
    "scale_embedding": (False,),
    "tie_embeddings": ("decoder",),
    "front_end": ("whisper",),
}

ARCHITECTURES = (
    Architecture("marian", "MarianMTModel", _MARIAN, marian),
    Architecture("pegasus", "PegasusForConditionalGeneration", _PLAIN, marian),
    Architecture("m2m_100", "M2M100ForConditionalGeneration", _M2M, m2m, ("bpe", "unigram")),
    Architecture("mbart", "MBartForConditionalGeneration", _MBART, mbart, ("unigram",), 2),
    Architecture("t5", "T5ForConditionalGeneration", _T5, t5, ("unigram", "bytes"), 0, T5Config),
    Architecture("bart", "BartForConditionalGeneration", _BART, bart, ("huggingface",), 2),
    Architecture(
        "blenderbot", "BlenderbotForConditionalGeneration", _LEARNED, bart, ("huggingface",)
    ),
    Architecture(
        "whisper",
        "WhisperForConditionalGeneration",
        _WHISPER,
        whisper,
        ("speech", "huggingface"),
        0,
        WhisperConfig,
    ),
)


def read_config(values: Mapping[str, Any]) -> tuple[Any, Architecture]:
    """Read a ``config.json``; raises InputError for a model that cannot be imported."""
    kind = typed_value(values.get("model_type"), Kind, "config.json.model_type")
    # mT5 is T5 with other defaults, all of which its config.json has.
    kind = "t5" if kind == "mt5" else kind
    architecture = next(known for known in ARCHITECTURES if known.model_type == kind)
    names = {field.name for field in fields(architecture.config)}
    known = {key: value for key, value in values.items() if key in names and value is not None}
    config: Any = typed(architecture.config, known, "config.json")
    allowed_values = {
        "scale_embedding": architecture.has["scale_embedding"],
        "normalize_before": (architecture.has["norm_order"][0] == "pre",),
        "normalize_embedding": architecture.has["embedding_norm"],
        "share_encoder_decoder_embeddings": {
            tied == "all" for tied in architecture.has["tie_embeddings"]
        },
    }
    objections = []
    for key, allowed in allowed_values.items():
        value = getattr(config, key, None)
        if value is not None and value not in allowed:
            objections.append(
                f"config.json.{key}={str(value).lower()} cannot be imported as {kind}, only "
                f"{' or '.join(str(known).lower() for known in allowed)}"
            )
    raise_objections(objections)
    return config, architecture


def model_settings(
    config: Any, architecture: Architecture, *, untied: bool = False
) -> dict[str, Any]:
    """The keys under ``model.`` of a run; ``untied``: the output is not the embedding."""
    settings = {name: allowed[0] for name, allowed in architecture.has.items()}
    for name, theirs in config.NAMES.items():
        settings[name] = getattr(config, theirs[0])
    settings["activation"] = config.ACTIVATIONS[getattr(config, config.ACTIVATION_KEY)]
    if isinstance(config, T5Config):
        settings["scale_output"] = config.model_type == "t5" and config.tie_word_embeddings
    elif isinstance(config, FairseqConfig) and not config.share_encoder_decoder_embeddings:
        settings["tie_embeddings"] = "decoder"
    if untied:
        settings["tie_embeddings"] = "inputs"
    return settings


def nearest_architecture(config: ModelConfig) -> Architecture:
    """The architecture with the most settings of a model; among equals, that of its norm order."""

    def agreement(architecture: Architecture) -> tuple[int, bool]:
        count = sum(getattr(config, name) in allowed for name, allowed in architecture.has.items())
        return count, config.norm_order in architecture.has["norm_order"]

    hears = config.front_end is not None
    known = [one for one in ARCHITECTURES if (one.config is WhisperConfig) is hears]
    return max(known, key=agreement)


def sinusoid_count(config: ModelConfig) -> int:
    """The sinusoids of an export, whose config has one number for both sides."""
    return max(config.source_positions, config.max_length)


def config_values(config: ModelConfig, source: ExportedIds, target: ExportedIds) -> dict[str, Any]:
    """The content of the ``config.json`` of a model."""
    architecture = nearest_architecture(config)
    kind = architecture.config
    values: dict[str, Any] = {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "is_encoder_decoder": True,
    }
    for name, theirs in kind.NAMES.items():
        for key in theirs:
            values[key] = getattr(config, name)
    if kind is FairseqConfig and config.positions != "learned":
        values["max_position_embeddings"] = sinusoid_count(config)
    activations = {ours: theirs for theirs, ours in kind.ACTIVATIONS.items()}
    values[kind.ACTIVATION_KEY] = activations[config.activation]
    if kind is T5Config:
        # T5 scales its output by this alone; its weights say whether it is tied.
        values["tie_word_embeddings"] = config.scale_output
    elif kind is WhisperConfig:
        stride = STRIDES["whisper"]
        values |= {
            "num_mel_bins": config.source_vocab_size // stride,
            "tie_word_embeddings": True,
            "bos_token_id": target.bos,
        }
    else:
        values |= {
            "static_position_embeddings": config.positions != "learned",
            "tie_word_embeddings": True,
            "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
            "decoder_vocab_size": len(target.names),
            "bos_token_id": target.bos,
            "forced_eos_token_id": target.eos,
        }
    return values | {
        "vocab_size": len(target.names if kind is WhisperConfig else source.names),
        "pad_token_id": source.pad,
        "eos_token_id": target.eos,
        "decoder_start_token_id": target.start,
        "dtype": "float32",
    }
