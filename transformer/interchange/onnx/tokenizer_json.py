"""Our subwords as the ``tokenizer.json`` of Hugging Face's ``tokenizers`` and of transformers.js.

There, a text that spells a control symbol becomes that symbol, and U+2581 becomes a space; here
both stay text. The page of ``format=web`` reads the same file as we do.
"""

from typing import Any

from transformer.common.errors import raise_objections
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.architectures.subwords import parse_subwords

_REPLACED = (("^ +| +$", ""), (" +", WORD_START))
_NORMALIZERS = (
    {"type": "NFC"},
    *({"type": "Replace", "pattern": {"Regex": a}, "content": b} for a, b in _REPLACED),
    {"type": "Prepend", "prepend": WORD_START},
)
_DECODERS = (
    {"type": "Replace", "pattern": {"String": WORD_START}, "content": " "},
    *({"type": "ByteFallback"}, {"type": "Fuse"}),
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
)


def tokenizer_files(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """``tokenizer.json`` of each vocabulary; raises InputError for tags, or other subwords."""
    learned, models = {*tokenizer.config.algorithms} <= {"bpe", "unigram"}, []
    state = tokenizer.to_state()
    if learned:
        contents = [state[side] for side in ("source", "target") if state[side] is not None]
        models = [parse_subwords(bytes(content.numpy())) for content in contents]
    required = {
        "tokenizer=bpe or unigram": learned,
        "no tags of languages": tokenizer.tags == Tags(),
        "no tokenizer.add, sentinels or imported subwords": all(map(_is_plain, models)),
    }
    raise_objections(
        f"ONNX and its tokenizer.json need {name}; export format=ctranslate2 or safetensors"
        for name, holds in required.items()
        if not holds
    )
    return [_file(model) for model in models]


def _is_plain(model: Any) -> bool:
    kinds = model.SentencePiece
    plain = {kinds.NORMAL, kinds.BYTE, kinds.CONTROL, kinds.UNKNOWN}
    spec = model.normalizer_spec
    return {piece.type for piece in model.pieces} <= plain and not spec.precompiled_charsmap


def _file(model: Any) -> dict[str, Any]:
    kinds, spec = model.SentencePiece, model.trainer_spec
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    end = model.pieces[spec.eos_id].piece
    text, second = ({"Sequence": {"id": side, "type_id": 0}} for side in "AB")
    last = {"SpecialToken": {"id": end, "type_id": 0}}
    return {
        # transformers.js wants the keys without a value, too.
        **{"version": "1.0", "truncation": None, "padding": None, "pre_tokenizer": None},
        "added_tokens": [
            {"id": number, "content": piece.piece, "special": True, **flags}
            for number, piece in enumerate(model.pieces)
            if piece.type in (kinds.CONTROL, kinds.UNKNOWN)
        ],
        "normalizer": {"type": "Sequence", "normalizers": _NORMALIZERS},
        "post_processor": {
            **{"type": "TemplateProcessing", "single": [text, last], "pair": [text, second, last]},
            "special_tokens": {end: {"id": end, "ids": [spec.eos_id], "tokens": [end]}},
        },
        "decoder": {"type": "Sequence", "decoders": _DECODERS},
        "model": _bpe(model) if spec.model_type == spec.BPE else _unigram(model),
    }


def _unigram(model: Any) -> dict[str, Any]:
    vocabulary = [[piece.piece, piece.score] for piece in model.pieces]
    unknown = model.trainer_spec.unk_id
    return {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": True}


def _bpe(model: Any) -> dict[str, Any]:
    """All pairs of pieces that make a piece, in the order of its score."""
    ids = {piece.piece: number for number, piece in enumerate(model.pieces)}
    normal = [piece for piece in model.pieces if piece.type == model.SentencePiece.NORMAL]
    names = [piece.piece for piece in sorted(normal, key=lambda piece: -piece.score)]
    cuts = ((name[:middle], name[middle:]) for name in names for middle in range(1, len(name)))
    merges = [[left, right] for left, right in cuts if left in ids and right in ids]
    settings = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    return {"type": "BPE", "vocab": ids, "merges": merges, **settings}
