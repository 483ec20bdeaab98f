"""``attention``: the weights of every head in one sentence pair, as a page and as numbers."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from transformer.checkpoint.checkpoint import Loaded
from transformer.checkpoint.run_directory import checkpoint_file, run_folder
from transformer.checkpoint.trust import require_trust
from transformer.common.errors import InputError
from transformer.common.files import require_writable, written_whole
from transformer.data.batching.batch import Row
from transformer.decoding.forced_decoding import forced_attention
from transformer.decoding.translator import Translator
from transformer.evaluation.attention_heads import (
    AttentionKind,
    AttentionView,
    Characters,
    EncodedPair,
    corpus_pairs,
    survey,
)
from transformer.interchange.translators import load_translator, local_run
from transformer.model.transformer import Transformer
from transformer.reports.attention_page import attention_page
from transformer.settings.commands import AttentionConfig
from transformer.settings.run import RunConfig


class Attention(NamedTuple):
    """All attention in one sentence pair, and the files that show it."""

    view: AttentionView
    files: list[Path]


def attention(config: AttentionConfig, *, loaded: Loaded = lambda checkpoints: None) -> Attention:
    """Record the attention in one sentence pair; write ``attention.html`` and ``attention.json``.

    Args:
        config: The settings; InputError if they contradict each other or the checkpoint.
        loaded: As for ``load_translator``.
    """
    folder = config.output or run_folder(local_run(config.checkpoint)) / "attention"
    translator, run = load_translator(config.translator, as_stored=True, loaded=loaded)
    view = attention_view(config, translator, run)
    require_writable(folder)
    numbers = json.dumps(view.to_json(), indent=1, ensure_ascii=False) + "\n"
    contents = {"attention.html": attention_page(view), "attention.json": numbers}
    for name, content in contents.items():
        with written_whole(folder / name) as part:
            part.write_bytes(content.encode())
    return Attention(view, [folder / name for name in contents])


def attention_view(
    config: AttentionConfig, translator: Translator, run: RunConfig
) -> AttentionView:
    """Translate the text, unless the target is given, and record every head."""
    text = config.text
    target = config.target
    pair = encoded_pair(translator, text, target)
    pairs = [pair]
    measured = "this sentence pair alone"
    if config.sentences:
        require_trust(run, config.trust, config.checkpoint)
        pairs = corpus_pairs(translator, run.data, config.split, config.sentences)
        measured = f"{len(pairs)} sentence pairs of the run's {config.split} text"
    characters = survey(translator, pairs)
    if characters["cross"][0][0].alignment_error is not None:
        measured += f" (AER: links from {translator.aligner.near_best} of the best weight on)"
    (translated,) = translator.tokenizer.decode_target([pair.target])
    return AttentionView(
        source=text,
        target=translated if target is None else target,
        forced=target is not None,
        checkpoint=str(checkpoint_file(local_run(config.checkpoint))),
        size=_size(translator.model),
        measured=measured,
        sentences=len(pairs),
        kinds=_kinds(translator, pair, characters),
    )


def encoded_pair(translator: Translator, text: str, target: str | None) -> EncodedPair:
    """The subwords of a text and of its translation, the translator's own unless it is given."""
    tokenizer = translator.tokenizer
    (source,) = tokenizer.encode_source([text])
    unit = "vectors" if tokenizer.reads_files else "subwords"
    longest = min(translator.limits.usual, translator.limits.longest)
    if tokenizer.reads_files and len(source) > longest:
        raise InputError(
            f"text= has {len(source)} vectors, and the model reads {longest} at once; name a part "
            f"of the sound, such as {text}#t=0,5"
        )
    source_limit, target_limit = translator.model.max_lengths
    _check("text", source, sys.maxsize if tokenizer.reads_files else source_limit, unit)
    if target is not None:
        [(_, subwords)] = tokenizer.encode_pairs([(text, target)])
        _check("target", subwords, target_limit)
        return EncodedPair(source, subwords)
    # The subwords of the search: the tokenizer might divide the same text in another way.
    (translation,) = translator.translate([text])
    spelled = tokenizer.subwords(range(tokenizer.target_vocab_size))
    ids = {subword: number for number, subword in enumerate(spelled)}
    return EncodedPair(source, [ids[subword] for subword in translation.tokens])


def _check(key: str, tokens: Row, limit: int, unit: str = "subwords") -> None:
    if not len(tokens):
        raise InputError(f"{key}= has 0 {unit}; give a sentence that is not blank")
    if len(tokens) >= limit:
        raise InputError(
            f"{key}= has {len(tokens)} {unit}; the model has learned positions of {limit}, the end "
            "of the sentence among them; give a shorter sentence"
        )


def _size(model: Transformer) -> str:
    weights = sum(weight.numel() for weight in model.parameters())
    shape = model.config
    layers = f"{shape.encoder_layers} + {shape.decoder_layers} layers"
    return f"{weights:,} parameters, {layers} of {shape.num_heads} heads, width {shape.d_model}"


def _kinds(
    translator: Translator,
    pair: EncodedPair,
    characters: Characters,
) -> list[AttentionKind]:
    batch, seen = forced_attention(translator.model, [pair.source], [pair.target])
    tokenizer = translator.tokenizer
    if tokenizer.reads_files:
        first = ["<class>"] if translator.model.config.class_token else []
        source = first + tokenizer.source_subwords(batch.source[0].cpu().numpy())
    else:
        source = tokenizer.source_subwords(batch.source[0].tolist())
    read = tokenizer.subwords(batch.target_input[0].tolist())
    written = tokenizer.subwords(batch.target_output[0].tolist())
    axes = {"encoder": (source, source), "decoder": (read, read), "cross": (written, source)}
    return [
        AttentionKind(
            kind,
            *_LABELS[kind],
            *axes[kind],
            weights=torch.stack([layer[0] for layer in attended.weights]).float().cpu(),
            visible=attended.visible[0].cpu(),
            characters=characters[kind],
        )
        for kind, attended in seen.items()
        if attended.weights
    ]


_LABELS = {
    "encoder": (
        "Encoder self-attention",
        "Each row is a source token; the columns are the source tokens it looks at.",
        "source",
        "source",
    ),
    "decoder": (
        "Decoder self-attention",
        "Each row is the target token read last; the columns are those read so far.",
        "target",
        "target",
    ),
    "cross": (
        "Cross-attention",
        "Each row is the target token being written; the columns are the source tokens.",
        "target",
        "source",
    ),
}
"""Title, note, and names of a row and of a column."""
