"""A translator for tests: a real tokenizer over a small alphabet and a random tiny model."""

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.helpers.model.models import portable, tiny_transformer
from transformer.checkpoint.checkpoint import PORTABLE, write_payload
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner
from transformer.decoding.translator import Translator
from transformer.settings.tokenizer import TokenizerConfig

from .steps import search_config

PAIRS = [
    ("a dog runs .", "ein hund läuft ."),
    ("two cats sleep .", "zwei katzen schlafen ."),
    ("the dog sees a cat .", "der hund sieht eine katze ."),
    ("a child reads a long book .", "ein kind liest ein langes buch ."),
]


@cache
def tiny_tokenizer() -> Tokenizer:
    """Bytes, the letters of ``PAIRS`` and a few words."""
    config = TokenizerConfig(
        algorithm="bpe",
        vocab_size=310,
        joint=True,
        sampling=0.0,
        character_coverage=1.0,
        max_sentences=1000,
    )
    return Tokenizer.train(config, lambda: PAIRS)


def tiny_translator(batch_tokens: int = 200, **changes: Any) -> Translator:
    """Random weights, sharpened so that rounding decides nothing.

    ``changes`` replace fields of the search config or the model config; ``aligner`` is the
    translator's own.
    """
    aligner = changes.pop("aligner", Aligner())
    tokenizer = tiny_tokenizer()
    searching = {
        name: changes.pop(name) for name in list(changes) if hasattr(search_config(), name)
    }
    sizes = {
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
    }
    model = tiny_transformer(**(sizes | changes))
    with torch.no_grad():
        model.projection.weight.mul_(2)
    return Translator(model, tokenizer, search_config(**searching), batch_tokens, aligner=aligner)


def save_translator(translator: Translator, file: Path, **portable_fields: Any) -> None:
    """Write the model file of a run of translation that has this translator's search."""
    run = {
        "task": "translation",
        "decoding": asdict(translator.search),
        "loss": {"alignment_weight": 0.0, "alignment_layer": None, "alignment_head": 0},
    }
    weights = {f"model.{name}": weight for name, weight in translator.model.state_dict().items()}
    part = portable(translator.model.config, translator.tokenizer.to_state(), run)
    write_payload({"state_dict": weights, PORTABLE: part | portable_fields}, file)


def wordy_translator(**changes: Any) -> Translator:
    """A greedy one whose translations differ, and have no bytes: these are hardly ever UTF-8."""
    search = {"algorithm": "greedy", "beam_size": 1, "nbest": 1}
    translator = tiny_translator(**search, output_bias=True, **changes)
    names = translator.tokenizer.subwords(range(translator.tokenizer.target_vocab_size))
    avoided = torch.tensor([name.startswith("<0x") or name == "<unk>" for name in names])
    model = translator.model
    with torch.no_grad():
        model.projection.bias.masked_fill_(avoided, -50)
        for weight in (*model.encoder.layers.parameters(), *model.decoder.layers.parameters()):
            if weight.dim() == 2:
                weight.mul_(3)
    return translator
