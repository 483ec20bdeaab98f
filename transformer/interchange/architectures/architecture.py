"""The architectures of transformers that can be imported, and their ``config.json``.

A new one is an entry of ARCHITECTURES: the values of our settings that its models have, the names
of its settings (``config_files.py``) and modules (``module_names.py``), and its tokenizer.
docs/interchange.md adds one step by step. Source: transformers 5, ``models/``.
"""

from collections.abc import Mapping
from dataclasses import fields
from types import ModuleType
from typing import Any, Literal, NamedTuple

from transformer.common.errors import raise_objections
from transformer.common.schema import typed, typed_value
from transformer.interchange.architectures import bart, m2m, marian, mbart, t5
from transformer.interchange.architectures.config_files import (
    ConfigFile,
    FairseqConfig,
    Kind,
    T5Config,
    settings,
    values,
)
from transformer.interchange.architectures.subwords import ExportedIds
from transformer.interchange.format_limits import Values
from transformer.settings.model import ModelConfig
from transformer.settings.tokenizer import BOS, EOS

_PLAIN: Values = {
    **{"norm": ("layer",), "activation": ("relu", "gelu", "gelu_tanh", "swish")},
    **{"biases": (True,), "scale_scores": (True,), "scale_embedding": (True,)},
    **{"scale_output": (False,), "embedding_norm": (False,), "positions": ("sinusoidal",)},
    **{"decoder_start": (None,), "tie_embeddings": ("all",), "norm_order": ("pre",)},
}
_MARIAN: Values = {**_PLAIN, "norm_order": ("post",), "tie_embeddings": ("all", "decoder")}
_M2M: Values = {**_PLAIN, "positions": ("fairseq",), "decoder_start": (EOS,)}
_LEARNED: Values = {**_PLAIN, "positions": ("learned",), "scale_embedding": (True, False)}
_MBART: Values = {**_LEARNED, "decoder_start": (EOS,), "embedding_norm": (True,)}
_BART: Values = {**_MBART, "norm_order": ("post",)}
_T5: Values = {
    **{**_PLAIN, "norm": ("rms",), "positions": ("relative",), "biases": (False,)},
    **{"activation": ("relu", "gelu", "gelu_tanh", "geglu_tanh", "swiglu")},
    **{"scale_scores": (False,), "scale_embedding": (False,), "scale_output": (False, True)},
    "tie_embeddings": ("all", "inputs"),
}


class Architecture(NamedTuple):
    """What distinguishes the models of a class of transformers.

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
        """What the names of its embeddings begin with."""
        return "" if self.config is T5Config else "model."

    @property
    def halves(self) -> bool:
        """Whether positions have all sines before all cosines."""
        return self.has["positions"][0] in ("sinusoidal", "fairseq")

    @property
    def output_bias(self) -> bool | Literal["fixed"]:
        """Whether there is a ``final_logits_bias``, and whether it learns."""
        positions = self.has["positions"][0]
        return "fixed" if positions == "learned" else positions == "sinusoidal"

    @property
    def tags_both_sides(self) -> bool:
        """Whether source and target begin with their languages."""
        return self.files in (m2m, mbart)


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
)


def read_config(given: Mapping[str, Any]) -> tuple[Any, Architecture]:
    """Read a ``config.json``; raises InputError for a model that cannot be imported."""
    kind = typed_value(given.get("model_type"), Kind, "config.json.model_type")
    # mT5 is T5 with other defaults, all of which its config.json has.
    kind = "t5" if kind == "mt5" else kind
    architecture = next(one for one in ARCHITECTURES if one.model_type == kind)
    own = {field.name for field in fields(architecture.config)}
    known = {key: value for key, value in given.items() if key in own and value is not None}
    config: Any = typed(architecture.config, known, "config.json")
    required = {
        "scale_embedding": architecture.has["scale_embedding"],
        "normalize_before": (architecture.has["norm_order"][0] == "pre",),
        "normalize_embedding": architecture.has["embedding_norm"],
        "share_encoder_decoder_embeddings": {
            one == "all" for one in architecture.has["tie_embeddings"]
        },
    }
    raise_objections(
        f"config.json.{key}={str(value).lower()} cannot be imported as {kind}, only "
        f"{' or '.join(str(one).lower() for one in allowed)}"
        for key, allowed in required.items()
        if (value := getattr(config, key, None)) is not None and value not in allowed
    )
    return config, architecture


def model_settings(
    config: Any, architecture: Architecture, *, untied: bool = False
) -> dict[str, Any]:
    """The keys under ``model.`` of a run; ``untied``: the output is not the embedding."""
    own = {name: allowed[0] for name, allowed in architecture.has.items()} | settings(config)
    if isinstance(config, T5Config):
        own["scale_output"] = config.model_type == "t5" and config.tie_word_embeddings
    elif not config.share_encoder_decoder_embeddings:
        own["tie_embeddings"] = "decoder"
    return own | ({"tie_embeddings": "inputs"} if untied else {})


def nearest_architecture(config: ModelConfig) -> Architecture:
    """The one that has the most settings of a model; of several, that of its norm order."""

    def equal(architecture: Architecture) -> tuple[int, bool]:
        count = sum(getattr(config, name) in allowed for name, allowed in architecture.has.items())
        return count, config.norm_order in architecture.has["norm_order"]

    return max(ARCHITECTURES, key=equal)


def config_values(config: ModelConfig, source: ExportedIds, target: ExportedIds) -> dict[str, Any]:
    """The content of the ``config.json`` of a model."""
    architecture = nearest_architecture(config)
    fairseq = {
        "static_position_embeddings": config.positions != "learned",
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "decoder_vocab_size": len(target.names),
        "bos_token_id": target.bos,
        "forced_eos_token_id": target.eos,
    }
    return {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "is_encoder_decoder": True,
        **values(architecture.config, config),
        # T5 scales its output by this alone; its weights say whether it is tied.
        **(
            {"tie_word_embeddings": config.scale_output}
            if architecture.config is T5Config
            else fairseq
        ),
        "vocab_size": len(source.names),
        "pad_token_id": source.pad,
        "eos_token_id": target.eos,
        "decoder_start_token_id": target.start,
        "dtype": "float32",
    }
