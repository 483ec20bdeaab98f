"""A model as a folder that transformers loads, and the comparison with what it translates there.

Post-norm models are a MarianMTModel there, pre-norm ones a PegasusForConditionalGeneration, which
has the same layers in the other order; the tokenizer is a MarianTokenizer (transformers 5,
``models/marian``, ``models/pegasus``).
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.text.parallel import Referenced
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.config import NEUTRAL
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import MetricsConfig
from transformer.interchange.marian import export_weights
from transformer.interchange.marian_vocabulary import ExportedIds, export_ids
from transformer.interchange.verification import compare_texts
from transformer.model.config import ModelConfig
from transformer.model.heads import heads_off

EXPRESSIBLE: dict[str, tuple[Any, ...]] = {
    "norm_order": ("post", "pre"),
    "norm": ("layer",),
    "positions": ("sinusoidal",),
    "activation": ("relu", "gelu", "swish"),
    "pattern": ("full",),
    "decoder_pattern": ("full", None),
    "num_kv_heads": (None,),
    "query_key_norm": (False,),
    "tie_embeddings": ("all", "decoder"),
}
"""The values of these settings that Marian and Pegasus have."""


def check_expressible(config: ModelConfig) -> None:
    """Check that transformers has such a model; raises InputError that names what it lacks."""
    for name, values in EXPRESSIBLE.items():
        if (value := getattr(config, name)) not in values:
            known = " or ".join("null" if v is None else str(v) for v in values)
            raise InputError(
                f"model.{name}={value} cannot be expressed as a Marian or Pegasus model, only "
                f"{known}; train with model.{name}={values[0]}, or export format=ctranslate2"
            )
    if config.head_dim not in (None, config.d_model // config.num_heads):
        raise InputError(f"model.head_dim={config.head_dim} cannot be expressed; only null")
    if config.norm_order == "pre" and config.tie_embeddings != "all":
        raise InputError(
            f"model.tie_embeddings={config.tie_embeddings} of a pre-norm model cannot be "
            "expressed; only all"
        )


def write_huggingface(translator: Translator, run: dict[str, Any], folder: Path) -> None:
    """Write config, weights, tokenizer and defaults of the search into an existing folder.

    Raises:
        InputError: transformers has no such model, or heads are switched off.
    """
    from safetensors.torch import save_file

    model, tokenizer = translator.model, translator.tokenizer
    config = model.config
    check_expressible(config)
    if off := heads_off(model):
        raise InputError(f"format=huggingface keeps all heads, {off[0]} too; leave out heads_off")
    target = export_ids(tokenizer.subwords(range(tokenizer.target_vocab_size)))
    source = export_ids(tokenizer.source_subwords(range(tokenizer.source_vocab_size)))
    weights = export_weights(model, source, target)
    separate = config.tie_embeddings != "all"
    _write_tokenizer(tokenizer, run, source, target if separate else None, folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    values = _config(config, source, target)
    _write_json(values, folder / "config.json")
    search = translator.search
    generation = {
        "bad_words_ids": [[one] for one in _never(tokenizer, target)],
        "num_beams": search.beam_size,
        # The mean of the log-probabilities; there is no other form.
        "length_penalty": search.length_penalty,
        "renormalize_logits": True,
        "max_length": config.max_length,
        **{key: values[key] for key in values if key.endswith("_token_id")},
    }
    _write_json(generation, folder / "generation_config.json")
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)


def _never(tokenizer: Tokenizer, target: ExportedIds) -> list[int]:
    """The ids that no translation has: symbols, and codes of languages."""
    banned = {0, target.rows[target.start], *tokenizer.never_written}
    return [number for number, row in enumerate(target.rows) if row in banned]


def _config(config: ModelConfig, source: ExportedIds, target: ExportedIds) -> dict[str, Any]:
    """The content of ``config.json``."""
    marian = config.norm_order == "post"
    kind = "MarianMTModel" if marian else "PegasusForConditionalGeneration"
    pad = source.start if target.names[target.start] == "<pad>" else 0
    return {
        "architectures": [kind],
        "model_type": "marian" if marian else "pegasus",
        "is_encoder_decoder": True,
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.ffn_dim,
        "decoder_ffn_dim": config.ffn_dim,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "max_position_embeddings": config.max_length,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "vocab_size": len(source.names),
        "decoder_vocab_size": len(target.names),
        "pad_token_id": pad,
        "bos_token_id": target.end,
        "eos_token_id": target.end,
        "forced_eos_token_id": target.end,
        "decoder_start_token_id": target.start,
        "dtype": "float32",
    }


def _write_tokenizer(
    tokenizer: Tokenizer,
    run: dict[str, Any],
    source: ExportedIds,
    target: ExportedIds | None,
    folder: Path,
) -> None:
    state = tokenizer.to_state()
    for side in ("source", "target"):
        model = state[side] if state[side] is not None else state["source"]
        (folder / f"{side}.spm").write_bytes(bytes(model.numpy()))
    files = {"vocab.json": source}
    if target is not None:
        files["target_vocab.json"] = target
    for file, ids in files.items():
        _write_json({name: number for number, name in enumerate(ids.names)}, folder / file)
    values = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": run["data"]["source"],
        "target_lang": run["data"]["target"],
        "separate_vocabs": target is not None,
        "model_max_length": run["model"]["max_length"],
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "clean_up_tokenization_spaces": False,
    }
    _write_json(values, folder / "tokenizer_config.json")


def _write_json(values: Any, file: Path) -> None:
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def verify_huggingface(
    translator: Translator,
    folder: Path,
    pairs: Sequence[Referenced],
    metrics: MetricsConfig,
) -> dict[str, Any]:
    """Compare a model with its export in transformers, both greedy (``compare_texts``)."""
    greedy = {**NEUTRAL, "algorithm": "greedy", "beam_size": 1, "nbest": 1, "min_length": 0}
    search = replace(translator.search, **greedy)
    return compare_texts(translator, search, partial(generate_greedily, folder), pairs, metrics)


def generate_greedily(folder: Path, texts: Sequence[str], batch: int = 32) -> list[str]:
    """Translate with transformers alone."""
    import transformers

    architecture = json.loads((folder / "config.json").read_text("utf-8"))["architectures"][0]
    model: Any = getattr(transformers, architecture).from_pretrained(folder).eval()
    with warnings.catch_warnings():
        # It offers a package that it does not use.
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        tokenizer: Any = transformers.MarianTokenizer.from_pretrained(folder)
    found: list[str] = []
    for start in range(0, len(texts), batch):
        encoded = tokenizer(list(texts[start : start + batch]), return_tensors="pt", padding=True)
        with torch.no_grad():
            ids: Tensor = model.generate(**encoded, num_beams=1)
        found += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return found
