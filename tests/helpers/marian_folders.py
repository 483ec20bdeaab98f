"""Marian folders of Hugging Face with random weights, and vocabularies of the pocket text."""

import gzip
import json
import random
from functools import cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from transformer.data.corpora.pocket import pocket_text


def sentences(language: str, split: str = "train", count: int = 2000) -> list[str]:
    """The first sentences of the pocket text."""
    with gzip.open(pocket_text(language)[split], "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n") for line in islice(lines, count)]


@cache
def pieces(language: str, kind: str = "unigram", byte_fallback: bool = False) -> bytes:
    """A SentencePiece model as OPUS-MT trains them."""
    model = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(language)),
        model_writer=model,
        vocab_size=400 + 256 * byte_fallback,
        model_type=kind,
        byte_fallback=byte_fallback,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def marian_folder(
    folder: Path,
    *,
    separate: bool = False,
    codes: tuple[str, ...] = (),
    missing: int = 7,
    half: bool = False,
    seed: int = 1,
    ends: float = 7.0,
    kind: str = "unigram",
    byte_fallback: bool = False,
    **changes: Any,
) -> Path:
    """Write a folder: ``missing`` pieces of each side are not in the vocabulary."""
    folder.mkdir(parents=True)
    drawn = random.Random(seed)
    sides = {
        "source": pieces("en", kind, byte_fallback),
        "target": pieces("de", kind, byte_fallback),
    }
    kept: dict[str, list[str]] = {}
    for side, model in sides.items():
        (folder / f"{side}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        names = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
        kept[side] = drawn.sample(names, len(names) - missing)
    wrapped = [f">>{code}<<" for code in codes]
    files = {"vocab.json": [*kept["source"], *kept["target"], *wrapped]}
    if separate:
        files = {
            "vocab.json": [*kept["source"], *wrapped],
            "target_vocab.json": kept["target"],
        }
    sizes = []
    for name, names in files.items():
        names = list(dict.fromkeys(names))
        drawn.shuffle(names)
        ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", *names, "<pad>"])}
        (folder / name).write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
        sizes.append(len(ids))
    values: dict[str, Any] = {
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[-1],
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 128,
        "pad_token_id": sizes[0] - 1,
        "eos_token_id": 0,
        "bos_token_id": 0,
        "forced_eos_token_id": 0,
        "decoder_start_token_id": sizes[-1] - 1,
        "share_encoder_decoder_embeddings": not separate,
        "num_beams": 4,
    }
    torch.manual_seed(seed)
    model = MarianMTModel(MarianConfig(**values | changes)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layer_norm" in name:
                weight.add_(torch.randn_like(weight) * 0.1)
            elif "embed_positions" not in name:
                weight.copy_(torch.randn_like(weight) * (0.25 if weight.dim() == 2 else 0.1))
        for table in {
            id(t): t for t in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens)
        }.values():
            table.weight[-1] = 0
        model.final_logits_bias[0, :-1] = torch.randn(sizes[-1] - 1) * 0.5
        # A random model would hardly ever end.
        model.final_logits_bias[0, 0] = ends
    if half:
        state = {n: w for n, w in model.half().state_dict().items() if "embed_positions" not in n}
        torch.save(state, folder / "pytorch_model.bin")
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
    else:
        model.save_pretrained(folder)
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "de",
        "separate_vocabs": separate,
        "model_max_length": 512,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


def theirs(folder: Path) -> tuple[Any, Any]:
    """The model and the tokenizer of transformers, in float32."""
    model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    return model, MarianTokenizer.from_pretrained(folder)
