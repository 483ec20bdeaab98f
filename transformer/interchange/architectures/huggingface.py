"""A model as a folder that transformers 5 loads, of the nearest architecture; its verification."""

import json
import warnings
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer.common.errors import raise_objections
from transformer.data.text.parallel import Referenced
from transformer.data.tokenization.tags import parse_tags
from transformer.decoding.translator import Translator
from transformer.interchange.architectures import whisper
from transformer.interchange.architectures.architecture import (
    WhisperConfig,
    config_values,
    nearest_architecture,
)
from transformer.interchange.architectures.subwords import ExportedIds, has_learned_bias
from transformer.interchange.architectures.weights import export_weights
from transformer.interchange.files import write_json
from transformer.interchange.verification import (
    PLAIN,
    TRANSFORMERS,
    check_expressible,
    check_formula,
    check_heads,
    compare_texts,
)
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import BOS, PAD


def write_huggingface(translator: Translator, run: RunConfig, folder: Path) -> None:
    """Write a model into an existing folder; InputError if transformers has no such model."""
    from safetensors.torch import save_file

    model = translator.model
    config = model.config
    architecture = nearest_architecture(config)
    check_expressible(config, architecture.class_name, {**TRANSFORMERS, **architecture.has})
    check_formula(model, architecture.class_name)
    tagged = translator.tokenizer.tags.both_sides
    tokenizers = architecture.tokenizers
    unknown = set(translator.tokenizer.config.algorithms) - set(tokenizers)
    required = {
        "model.head_dim=null": not architecture.prefix  # T5
        or config.head_dim in (None, config.d_model // config.num_heads),
        "model.positions=fairseq for data.target_tag=both": architecture.tags_both_sides
        or not tagged,
        "model.max_source_length=null": architecture.config is WhisperConfig
        or config.positions != "learned"
        or config.source_positions == config.max_length,
        "model.output_bias=false": architecture.output_bias is not False
        or not has_learned_bias(model),
        f"tokenizer={' or '.join(tokenizers)}": not unknown,
    }
    raise_objections(
        f"transformers needs {name}; or choose format=safetensors"
        for name, holds in required.items()
        if not holds
    )
    check_heads(model)
    source, target = architecture.files.export_tokenizer(translator, run, folder)
    weights = export_weights(model, source, target)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    values = config_values(config, source, target)
    write_json(values, folder / "config.json")
    generation = _generation(translator, target)
    if translator.tokenizer.tags.speech is not None:
        generation |= whisper.generation_values(translator.tokenizer, target)
    generation |= {key: values[key] for key in values if key.endswith("_token_id")}
    write_json(generation, folder / "generation_config.json")
    # save_file ignores the umask.
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)


def _generation(translator: Translator, target: ExportedIds) -> dict[str, Any]:
    search = translator.search
    tags = translator.tokenizer.tags
    # Symbols, and codes of languages.
    never = {PAD, BOS, *translator.tokenizer.never_written}
    banned = [[number] for number, row in enumerate(target.rows) if row in never]
    generation: dict[str, Any] = {
        # What a translation begins with is forced, so languages cannot be banned.
        "bad_words_ids": None if tags.both_sides else banned,
        "num_beams": search.beam_size,
        "no_repeat_ngram_size": search.no_repeat_ngram,
        # There the start counts.
        "min_length": search.min_length + 1 if search.min_length else 0,
        # The mean of the log-probabilities; there is no other form.
        "length_penalty": search.length_penalty,
        "renormalize_logits": True,
        # With the start, and the end, which is no input.
        "max_length": translator.model.config.max_length + 1,
    }
    if search.beam_size > 1:
        # "never" is stopping=exact; transformers warns of the key in greedy search.
        generation["early_stopping"] = True if search.stopping == "full" else "never"
    if tags.speech is not None:
        # Its search is not renormalized, and bans symbols by keys of its own.
        del generation["bad_words_ids"], generation["renormalize_logits"]
        generation["max_length"] = translator.model.config.max_length
    if tags.begin:
        generation["forced_bos_token_id"] = target.bos
    return generation


def verify_huggingface(
    translator: Translator, folder: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare a model with its export in transformers, both greedy (``compare_texts``)."""
    # The only limit of both is the last position of the model.
    limit = min(translator.model.config.max_length, 10_000)
    changes = PLAIN | {"max_length_ratio": 0.0, "max_length_offset": limit}
    return compare_texts(translator, changes, partial(generate_greedily, folder), pairs, metrics)


def generate_greedily(folder: Path, texts: Sequence[str]) -> list[str]:
    """Translate with transformers alone; tags of the texts choose the languages."""
    import transformers

    class_name = json.loads((folder / "config.json").read_text("utf-8"))["architectures"][0]
    if class_name.startswith("Whisper"):
        return whisper.generate_greedily(folder, texts)
    model: Any = getattr(transformers, class_name).from_pretrained(folder).eval()
    with warnings.catch_warnings():
        # The package is recommended, and not used.
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        marian = class_name.startswith(("Marian", "Pegasus"))
        kind = "MarianTokenizer" if marian else "AutoTokenizer"
        tokenizer: Any = getattr(transformers, kind).from_pretrained(folder)
    plain = {"num_beams": 1, "no_repeat_ngram_size": 0, "min_length": 0}
    # The tokenizer of Blenderbot writes no end.
    end = "</s>" if class_name.startswith("Blenderbot") else ""
    translations: list[str] = []
    for tags, group in groupby(texts, parse_tags):
        forced = {}
        # A text for Marian begins with the code of its target.
        code = f">>{tags.target}<< " if marian and tags.target is not None else ""
        lines = [f"{code}{line}{end}" for line in group]
        if tags.target is not None and kind == "AutoTokenizer":
            tokenizer.src_lang = tags.source
            tokenizer.tgt_lang = tags.target
            forced["forced_bos_token_id"] = tokenizer(text_target="").input_ids[0]
        for start in range(0, len(lines), 32):
            encoded = tokenizer(lines[start : start + 32], return_tensors="pt", padding=True)
            with torch.no_grad():
                ids: Tensor = model.generate(**encoded, **forced, **plain)
            translations += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return translations
