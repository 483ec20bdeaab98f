"""The families of models that transformers has, and their ``config.json``.

A new family is an entry of FAMILIES and, if its vocabulary has another form, a module with
``import_tokenizer`` and ``export_tokenizer``. Source: transformers 5, ``models/``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, typed
from transformer.data.tokenization.tokenizer import EOS
from transformer.decoding.translation.translator import Translator
from transformer.interchange.expressible import Values
from transformer.interchange.families import m2m, marian
from transformer.interchange.families.subwords import ExportedIds, ImportedTokenizer
from transformer.model.config import ModelConfig

Kind = Literal["marian", "pegasus", "m2m_100"]
"""Values of ``model_type`` in a ``config.json``; Pegasus with the tokenizer of Marian."""


class Family(NamedTuple):
    """What distinguishes the models of a class of transformers.

    Attributes:
        model_type: Its name in a ``config.json``.
        architecture: The class.
        norm_order, positions, decoder_start: Those of ``model.`` in a config of ours.
        ties: Values of ``model.tie_embeddings``.
        output_bias: Whether there is a ``final_logits_bias``.
        stores_positions: Whether the positions are among the weights.
        languages: The keys of the languages in ``tokenizer_config.json``; with ``tags_both_sides``
            source and target begin with them.
        import_tokenizer: From a folder and ``vocab_size`` of its ``config.json``.
        export_tokenizer: Writes a translator with the config of its run into a folder; returns the
            ids of the source and the target.
    """

    model_type: Kind
    architecture: str
    norm_order: Literal["pre", "post"]
    positions: Literal["sinusoidal", "fairseq"] = "sinusoidal"
    decoder_start: int | None = None
    ties: tuple[Literal["all", "decoder"], ...] = ("all",)
    output_bias: bool = True
    stores_positions: bool = False
    languages: tuple[str, str] = ("source_lang", "target_lang")
    tags_both_sides: bool = False
    import_tokenizer: Callable[[Path, Any], ImportedTokenizer] = marian.import_tokenizer
    export_tokenizer: Callable[
        [Translator, dict[str, Any], Path], tuple[ExportedIds, ExportedIds]
    ] = marian.export_tokenizer

    def settings(self) -> Values:
        """The settings of its models under ``model.``."""
        own = {"norm_order": (self.norm_order,), "positions": (self.positions,)}
        return {**own, "decoder_start": (self.decoder_start,), "tie_embeddings": self.ties}


FAMILIES = (
    Family("marian", "MarianMTModel", "post", ties=("all", "decoder")),
    Family("pegasus", "PegasusForConditionalGeneration", "pre", stores_positions=True),
    Family(
        "m2m_100",
        "M2M100ForConditionalGeneration",
        "pre",
        "fairseq",
        decoder_start=EOS,
        output_bias=False,
        languages=("src_lang", "tgt_lang"),
        tags_both_sides=True,
        import_tokenizer=m2m.import_tokenizer,
        export_tokenizer=m2m.export_tokenizer,
    ),
)

_SAME = "d_model encoder_layers decoder_layers dropout attention_dropout activation_dropout"
SETTINGS = {
    **{name: (name,) for name in _SAME.split()},
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "ffn_dim": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "layer_drop": ("encoder_layerdrop", "decoder_layerdrop"),
    "max_length": ("max_position_embeddings",),
}
"""Our settings of a model of any family, and their names in a ``config.json``."""


@dataclass(frozen=True)
class TransformersConfig:
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

    @property
    def family(self) -> Family:
        """That of ``model_type``."""
        return next(one for one in FAMILIES if one.model_type == self.model_type)

    def settings(self) -> dict[str, Any]:
        """The keys under ``model.`` of a run."""
        swish = self.activation_function == "silu"
        return {
            **{ours: getattr(self, names[0]) for ours, names in SETTINGS.items()},
            **{name: values[0] for name, values in self.family.settings().items()},
            "activation": "swish" if swish else self.activation_function,
            "norm": "layer",
            "tie_embeddings": "all" if self.share_encoder_decoder_embeddings else "decoder",
        }


def read_config(values: Mapping[str, Any]) -> TransformersConfig:
    """Read a ``config.json``; raises InputError for a model that cannot be imported."""
    own = {field.name for field in fields(TransformersConfig)}
    given = {key: value for key, value in values.items() if key in own and value is not None}
    return typed(TransformersConfig, given, "config.json")


def nearest_family(config: ModelConfig) -> Family:
    """The family that has the most settings of a model; of several, that of its norm order."""

    def equal(family: Family) -> tuple[int, bool]:
        settings = family.settings()
        count = sum(getattr(config, name) in has for name, has in settings.items())
        return count, config.norm_order in settings["norm_order"]

    return max(FAMILIES, key=equal)


def config_values(config: ModelConfig, source: ExportedIds, target: ExportedIds) -> dict[str, Any]:
    """The content of the ``config.json`` of a model."""
    family = nearest_family(config)
    return {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "is_encoder_decoder": True,
        **{name: getattr(config, ours) for ours, names in SETTINGS.items() for name in names},
        "activation_function": config.activation,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "vocab_size": len(source.names),
        "decoder_vocab_size": len(target.names),
        "pad_token_id": source.pad,
        "bos_token_id": target.bos,
        "eos_token_id": target.eos,
        "forced_eos_token_id": target.eos,
        "decoder_start_token_id": target.start,
        "dtype": "float32",
    }
