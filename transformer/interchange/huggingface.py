"""A model as a folder that transformers loads, and its verification.

A post-norm model becomes a MarianMTModel, a pre-norm model a PegasusForConditionalGeneration or,
with the positions of fairseq, an M2M100ForConditionalGeneration; the tokenizer is a
MarianTokenizer, or that of M2M-100 or NLLB. Source: transformers 5, ``models/``.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer.common.errors import raise_objections
from transformer.data.text.parallel import Referenced
from transformer.data.tokenization.tags import Tags, parse_tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import MetricsConfig
from transformer.interchange.expressible import check_expressible, check_heads
from transformer.interchange.marian.m2m import export_ids as export_m2m_ids
from transformer.interchange.marian.m2m import write_tokenizer
from transformer.interchange.marian.vocabulary import ExportedIds, export_ids
from transformer.interchange.marian.weights import SETTINGS, export_weights
from transformer.interchange.verification import PLAIN, compare_texts
from transformer.model.config import ModelConfig


def _check(config: ModelConfig, tags: Tags) -> None:
    """Raise InputError if transformers has no such model."""
    m2m = config.positions == "fairseq"
    check_expressible(config, "M2M-100" if m2m else "Marian or Pegasus")
    required = {
        "model.head_dim=null": config.head_dim in (None, config.d_model // config.num_heads),
        "model.tie_embeddings=all, or model.norm_order=post": (
            config.norm_order == "post" or config.tie_embeddings == "all"
        ),
        "model.positions=fairseq for data.target_tag=both": m2m or not tags.both_sides,
    }
    raise_objections(f"transformers needs {name}" for name, holds in required.items() if not holds)


def write_huggingface(translator: Translator, run: dict[str, Any], folder: Path) -> None:
    """Write config, weights, tokenizer and defaults of the search into an existing folder.

    Raises InputError if transformers has no such model, or heads are switched off.
    """
    from safetensors.torch import save_file

    model, tokenizer = translator.model, translator.tokenizer
    config = model.config
    _check(config, tokenizer.tags)
    check_heads(model)
    if m2m := config.positions == "fairseq":
        source = target = export_m2m_ids(model, tokenizer)
        own = {"src_lang": run["data"]["source"], "tgt_lang": run["data"]["target"]}
        write_tokenizer(tokenizer, target, own, folder)
    else:
        target = export_ids(tokenizer.subwords(range(tokenizer.target_vocab_size)))
        source = export_ids(tokenizer.source_subwords(range(tokenizer.source_vocab_size)))
        separate = config.tie_embeddings != "all"
        _write_tokenizer(tokenizer, run, source, target if separate else None, folder)
    weights = export_weights(model, source, target)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    values = _config(config, source, target)
    _write_json(values, folder / "config.json")
    search = translator.search
    # Symbols, and codes of languages.
    never = {0, target.rows[target.start], *tokenizer.never_written}
    banned = [[number] for number, row in enumerate(target.rows) if row in never]
    generation = {
        "bad_words_ids": None if m2m else banned,
        "num_beams": search.beam_size,
        # The mean of the log-probabilities; there is no other form.
        "length_penalty": search.length_penalty,
        "renormalize_logits": True,
        # With the start, and the end, which is no input.
        "max_length": config.max_length + 1,
        **{key: values[key] for key in values if key.endswith("_token_id")},
    }
    _write_json(generation, folder / "generation_config.json")
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)


def _config(config: ModelConfig, source: ExportedIds, target: ExportedIds) -> dict[str, Any]:
    """The content of ``config.json``."""
    kind, name = "PegasusForConditionalGeneration", "pegasus"
    if m2m := config.positions == "fairseq":
        kind, name = "M2M100ForConditionalGeneration", "m2m_100"
    elif config.norm_order == "post":
        kind, name = "MarianMTModel", "marian"
    pad = source.start if target.names[target.start] == "<pad>" else int(m2m)
    return {
        "architectures": [kind],
        "model_type": name,
        "is_encoder_decoder": True,
        **{name: getattr(config, ours) for ours, names in SETTINGS.items() for name in names},
        "activation_function": config.activation,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "vocab_size": len(source.names),
        "decoder_vocab_size": len(target.names),
        "pad_token_id": pad,
        "bos_token_id": 0 if m2m else target.end,
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
    translator: Translator, folder: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare a model with its export in transformers, both greedy (``compare_texts``)."""
    # The only limit of both is the last position of the model.
    longest = min(translator.model.config.max_length, 10_000)
    search = replace(translator.search, **PLAIN, max_length_ratio=0.0, max_length_offset=longest)
    return compare_texts(translator, search, partial(generate_greedily, folder), pairs, metrics)


def generate_greedily(folder: Path, texts: Sequence[str]) -> list[str]:
    """Translate with transformers alone; an M2M-100 model by the tags of the texts."""
    import transformers

    architecture = json.loads((folder / "config.json").read_text("utf-8"))["architectures"][0]
    model: Any = getattr(transformers, architecture).from_pretrained(folder).eval()
    with warnings.catch_warnings():
        # The package is recommended, and not used.
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        kind = "AutoTokenizer" if architecture.startswith("M2M") else "MarianTokenizer"
        tokenizer: Any = getattr(transformers, kind).from_pretrained(folder)
    found: list[str] = []
    for tags, group in groupby(texts, parse_tags):
        lines, forced = list(group), {}
        if kind == "AutoTokenizer":
            tokenizer.src_lang, tokenizer.tgt_lang = tags.source, tags.target
            forced["forced_bos_token_id"] = tokenizer(text_target="").input_ids[0]
        for start in range(0, len(lines), 32):
            encoded = tokenizer(lines[start : start + 32], return_tensors="pt", padding=True)
            with torch.no_grad():
                ids: Tensor = model.generate(**encoded, **forced, num_beams=1)
            found += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return found
