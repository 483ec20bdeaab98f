"""Our subwords as the ``tokenizer.json`` of Hugging Face's ``tokenizers`` and of transformers.js.

There, a text that spells a control symbol becomes that symbol, and U+2581 becomes a space; here
both stay text. The page of ``format=web`` reads the same file as we do.
"""

from typing import Any

from transformer.common.errors import raise_objections
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.families.subwords import parse_subwords

_NORMALIZER = {
    "type": "Sequence",
    "normalizers": [
        {"type": "NFC"},
        {"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""},
        {"type": "Replace", "pattern": {"Regex": " +"}, "content": WORD_START},
        {"type": "Prepend", "prepend": WORD_START},
    ],
}
_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": WORD_START}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}


def tokenizer_files(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """``tokenizer.json`` of the source and, unless both sides share it, of the target.

    Raises InputError for tags, and for subwords that were not learnt here.
    """
    learnt, models = {*tokenizer.config.algorithms} <= {"bpe", "unigram"}, []
    state = tokenizer.to_state()
    if learnt:
        contents = [state[side] for side in ("source", "target") if state[side] is not None]
        models = [parse_subwords(bytes(content.numpy())) for content in contents]
    required = {
        "tokenizer=bpe or unigram": learnt,
        "no tags of languages": tokenizer.tags == Tags(),
        "no words of tokenizer.add or sentinels, and no imported subwords": all(
            map(_is_plain, models)
        ),
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
    kinds = model.SentencePiece
    symbols = [p.type in (kinds.CONTROL, kinds.UNKNOWN) for p in model.pieces]
    names = [piece.piece for piece in model.pieces]
    spec = model.trainer_spec
    end = names[spec.eos_id]
    return {
        # transformers.js wants the keys without a value, too.
        **{"version": "1.0", "truncation": None, "padding": None, "pre_tokenizer": None},
        "added_tokens": [
            {"id": number, "content": names[number], "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for number, symbol in enumerate(symbols)
            if symbol
        ],
        "normalizer": _NORMALIZER,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, _special(end)],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
                _special(end),
            ],
            "special_tokens": {end: {"id": end, "ids": [spec.eos_id], "tokens": [end]}},
        },
        "decoder": _DECODER,
        "model": _bpe(model) if spec.model_type == spec.BPE else _unigram(model),
    }


def _special(name: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": 0}}


def _unigram(model: Any) -> dict[str, Any]:
    vocabulary = [[piece.piece, piece.score] for piece in model.pieces]
    unknown = model.trainer_spec.unk_id
    return {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": True}


def _bpe(model: Any) -> dict[str, Any]:
    """All pairs of pieces that make a piece, in the order of its score."""
    ids = {piece.piece: number for number, piece in enumerate(model.pieces)}
    normal = [piece for piece in model.pieces if piece.type == model.SentencePiece.NORMAL]
    merges = [
        (piece.piece[:middle], piece.piece[middle:])
        for piece in sorted(normal, key=lambda piece: -piece.score)
        for middle in range(1, len(piece.piece))
        if piece.piece[:middle] in ids and piece.piece[middle:] in ids
    ]
    unknown = model.pieces[model.trainer_spec.unk_id].piece
    return {
        **{"type": "BPE", "vocab": ids, "merges": [list(pair) for pair in merges]},
        **{"unk_token": unknown, "fuse_unk": True, "byte_fallback": True},
    }
