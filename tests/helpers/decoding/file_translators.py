"""Translators of files with random weights, and sounds and pictures made up for them."""

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image

from tests.helpers.model.models import run_of, tiny_transformer
from transformer.checkpoint.checkpoint import PORTABLE, Portable, write_payload
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.long_inputs import SourceLimits
from transformer.decoding.translator import Translator
from transformer.settings.sources import (
    DEFAULT_FRONT_ENDS,
    STRIDES,
    ImageConfig,
    SourceConfig,
    SpeechConfig,
)
from transformer.settings.tokenizer import TokenizerConfig

from .steps import search_config

WORDS = "one two three four five six seven eight"

RATE = 16_000


@cache
def file_tokenizer(kind: str, **speech: Any) -> Tokenizer:
    """Words on the target side; files of speech or of pictures."""
    config = TokenizerConfig(
        algorithm="words", vocab_size=None, joint=False, sampling=0.0, source=kind
    )
    source = SourceConfig(
        kind=kind,
        stride=STRIDES[DEFAULT_FRONT_ENDS[kind]],
        speech=SpeechConfig(mels=8, **speech),
        image=ImageConfig(height=8, patch_height=8, patch_width=4),
    )
    return Tokenizer.train(config, lambda: [("", WORDS)], source=source)


def file_translator(kind: str = "speech", usual: int = 100, **speech: Any) -> Translator:
    """Greedy; at most eight words for a window; a sound of more than ``usual`` vectors is cut."""
    tokenizer = file_tokenizer(kind, **speech)
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        front_end=DEFAULT_FRONT_ENDS[kind],
        tie_embeddings="none",
        max_length=256,
    )
    search = search_config(algorithm="greedy", beam_size=1)
    limits = SourceLimits() if kind == "image" else SourceLimits(usual=usual)
    return Translator(model, tokenizer, search, 2000, limits=limits)


def save_file_translator(translator: Translator, file: Path) -> None:
    """Write the checkpoint of a run that has this translator's model and search."""
    config = translator.tokenizer.vector_source.config
    run = run_of(
        translator.model.config,
        decoding=asdict(translator.search),
        tokenizer={"source": config.kind, "joint": False, "algorithm": "words", "sampling": 0.0},
        data={"corpus": "files", "source": "file", "target": "en", "source_kind": config.kind},
    )
    weights = {f"model.{name}": weight for name, weight in translator.model.state_dict().items()}
    part = Portable(run, translator.tokenizer.to_state(), translator.limits.usual).to_plain()
    write_payload({"state_dict": weights, PORTABLE: part}, file)


def write_sound(path: Path, seconds: float, rate: int = RATE) -> Path:
    """Noise whose loudness swings once in two seconds, from silence at 0."""
    random = np.random.default_rng(3)
    times = np.arange(round(seconds * rate)) / rate
    samples = 0.3 * np.sin(np.pi * times / 2) ** 2 * random.standard_normal(len(times))
    soundfile.write(path, samples.clip(-1, 1), rate)
    return path


def write_picture(path: Path, width: int = 24) -> Path:
    """Random gray pixels, 8 high."""
    pixels = np.random.default_rng(4).integers(0, 256, (8, width), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path
