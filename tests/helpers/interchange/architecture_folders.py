"""Folders of T5, mBART-50 and BART of Hugging Face, with random weights."""

import json
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers import ByteLevelBPETokenizer
from torch import nn

from tests.helpers.interchange.marian_folders import SIZES, pieces, sentences
from tests.helpers.lazy import hf

T5_SIZES: dict[str, Any] = {
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 48,
    "num_heads": 4,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "decoder_start_token_id": 0,
}


T5_FACTORS = {"relative_attention_bias": 8.0}
PRE_NORM = {"embed_positions": 4.0, "encoder_attn.out_proj": 0.5}
POST_NORM = {"encoder_attn.out_proj": 4.0}


@cache
def unigram(**ids: int) -> bytes:
    """A unigram model of the pocket text with these ids of its symbols."""
    model = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=chain(sentences("en"), sentences("de")),
        model_writer=model,
        vocab_size=500,
        num_threads=1,
        minloglevel=2,
        normalization_rule_name="nmt_nfkc",
        **ids,
    )
    return model.getvalue()


def randomize(model: Any, ends: float, end: int, factors: Mapping[str, float]) -> None:
    """Draw all weights; the logit of the end varies ``ends`` times as much as the others.

    Weights of these names are multiplied by ``factors``, so that texts do not repeat one token.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            scale = "norm" in name and name.endswith("weight")
            weight.copy_(1 + noise * 0.1 if scale else noise * (0.25 if weight.dim() > 1 else 0.1))
            for part, factor in factors.items():
                weight.mul_(factor if part in name else 1.0)
        output = model.get_output_embeddings().weight
        output.mul_(0.5)
        output[end] *= ends


def t5_folder(
    folder: Path,
    *,
    sentencepiece_file: bool = False,
    untied: bool = False,
    kind: str = "t5",
    layout: str = "t5",
    vocab_size: int = 640,
    ends: float = 5.0,
    seed: int = 1,
    **changes: Any,
) -> Path:
    """Write a folder of T5 or mT5, with 100 sentinels; MADLAD-400's layout has none."""
    folder.mkdir(parents=True)
    madlad = layout == "madlad"
    ids = {"unk_id": 0, "bos_id": 1, "eos_id": 2} if madlad else {"pad_id": 0, "eos_id": 1}
    ids = ids if madlad else {**ids, "unk_id": 2, "bos_id": -1}
    (folder / "spiece.model").write_bytes(unigram(**ids))
    given = {"extra_ids": 0, "pad_token": "<s>"} if madlad else {"extra_ids": 100}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "T5Tokenizer", **given})
    )
    if not sentencepiece_file:
        tokenizer = hf.T5Tokenizer.from_pretrained(folder, **given)
        (folder / "spiece.model").unlink()
        tokenizer.save_pretrained(folder)
    symbols = {"pad_token_id": 1, "eos_token_id": 2} if madlad else {}
    values = {**T5_SIZES, "vocab_size": vocab_size, **symbols, **changes}
    torch.manual_seed(seed)
    classes = {"t5": (hf.T5Config, hf.T5ForConditionalGeneration)}
    classes["mt5"] = (hf.MT5Config, hf.MT5ForConditionalGeneration)
    config, model = classes[kind]
    built = model(config(**values, tie_word_embeddings=not untied)).eval()
    if untied:
        built.lm_head.weight = nn.Parameter(torch.empty_like(built.lm_head.weight))
        built.config.tie_word_embeddings = False
    randomize(built, ends, 2 if madlad else 1, T5_FACTORS)
    built.save_pretrained(folder)
    return folder


def mbart_folder(
    folder: Path,
    *,
    sentencepiece_file: bool = False,
    seed: int = 1,
    ends: float = 3.0,
    **changes: Any,
) -> Path:
    """Write a folder of mBART-50."""
    folder.mkdir(parents=True)
    subwords = pieces("en de")
    (folder / "sentencepiece.bpe.model").write_bytes(subwords)
    own = {"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX", "tgt_lang": "de_DE"}
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    tokenizer = hf.MBart50Tokenizer.from_pretrained(folder)
    if not sentencepiece_file:
        (folder / "sentencepiece.bpe.model").unlink()
        tokenizer.save_pretrained(folder)
    values = {**SIZES, "vocab_size": len(tokenizer), "decoder_start_token_id": 2, **changes}
    torch.manual_seed(seed)
    model = hf.MBartForConditionalGeneration(hf.MBartConfig(**values)).eval()
    randomize(model, ends, 2, PRE_NORM)
    model.save_pretrained(folder)
    return folder


def bart_folder(
    folder: Path,
    *,
    kind: str = "bart",
    old_files: bool = False,
    fewer: int = 0,
    seed: int = 1,
    ends: float = 3.0,
    **changes: Any,
) -> Path:
    """Write a folder of BART or Blenderbot; ``fewer`` tokens have no vector."""
    folder.mkdir(parents=True)
    trained = ByteLevelBPETokenizer()
    symbols = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "blenderbot":
        symbols = ["<pad>", "<s>", "</s>", "<unk>"]
    text = chain(sentences("en"), sentences("de"))
    trained.train_from_iterator(text, 500, special_tokens=symbols, show_progress=False)
    trained.save_model(str(folder))
    tokenizer_class = hf.BartTokenizer if kind == "bart" else hf.BlenderbotTokenizer
    tokenizer = tokenizer_class.from_pretrained(folder)
    if not old_files:
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink()
        tokenizer.save_pretrained(folder)
    values: dict[str, Any] = {**SIZES, "vocab_size": len(tokenizer) - fewer, **changes}
    torch.manual_seed(seed)
    if kind == "bart":
        model: Any = hf.BartForConditionalGeneration(hf.BartConfig(**values)).eval()
        randomize(model, 1.0, 2, POST_NORM)
        model.final_logits_bias[0, 2] = 1.6
    else:
        model = hf.BlenderbotForConditionalGeneration(hf.BlenderbotConfig(**values)).eval()
        randomize(model, ends, 2, PRE_NORM)
    model.save_pretrained(folder)
    return folder


def byt5_folder(folder: Path, *, seed: int = 2, ends: float = 5.0, **changes: Any) -> Path:
    """Write a folder of ByT5."""
    folder.mkdir(parents=True)
    hf.ByT5Tokenizer().save_pretrained(folder)
    torch.manual_seed(seed)
    config = hf.T5Config(**{**T5_SIZES, "vocab_size": 384, **changes}, tie_word_embeddings=True)
    model = hf.T5ForConditionalGeneration(config).eval()
    # Otherwise its scaled logits are so small that frozen embeddings can learn nothing.
    randomize(model, ends, 1, {**T5_FACTORS, "decoder.final_layer_norm": 2.0})
    model.save_pretrained(folder)
    return folder
