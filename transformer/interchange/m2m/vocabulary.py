"""The vocabulary of an M2M-100 or NLLB folder of Hugging Face, as a tokenizer of this framework.

M2M-100 has a SentencePiece model, whose pieces ``vocab.json`` numbers; NLLB a ``tokenizer.json``
with the merges of BPE. Here, SentencePiece gives the ids: its model is written anew, with our
symbols, the pieces in the order of their ids there, and what comes after the languages there. The
languages are tags. Source: transformers 5, ``models/m2m_100``, ``models/nllb``.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from transformer.common.errors import InputError
from transformer.common.schema import typed_value
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig
from transformer.interchange.marian_vocabulary import (
    ALGORITHMS,
    ImportedIds,
    read_json,
    read_subwords,
)

SYMBOLS = {"<pad>": 1, "<unk>": 3, "<s>": 0, "</s>": 2}
"""Our symbols in their order, with their ids there."""

EXTRA, REST = "<extra{}>", "<rest>"
"""Names of ids after the languages, and before pieces that ``vocab.json`` lacks."""

_MOST_EXTRA = 1000
_M2M_CODE, _NLLB_CODE = re.compile(r"__([\w-]+)__"), re.compile(r"([a-z]{3}_[A-Z][a-z]{3})")


class _Vocabulary(NamedTuple):
    """What a folder holds: SentencePiece, ids of pieces from 4 on, and ids of languages."""

    subwords: Any
    pieces: dict[str, int]
    codes: dict[str, int]


def import_tokenizer(folder: Path, vocab_size: int) -> tuple[Tokenizer, ImportedIds]:
    """The tokenizer of a folder, and its ids there.

    Raises:
        InputError: A file is missing, damaged, or of a kind that cannot be expressed.
    """
    found = _m2m(folder) if (folder / "vocab.json").is_file() else _nllb(folder)
    used = [*sorted(SYMBOLS.values()), *found.pieces.values(), *found.codes.values()]
    if not found.codes or used != list(range(len(used))):
        raise InputError(
            f"{folder} does not give {len(found.pieces)} pieces and {len(found.codes)} language "
            f"codes the ids from {len(SYMBOLS)} on, in this order"
        )
    if not len(used) <= vocab_size <= len(used) + _MOST_EXTRA:
        raise InputError(
            f"{folder}: vocab_size={vocab_size} of config.json does not fit the {len(used)} ids of "
            "the tokenizer"
        )
    model, ids = _model(found, list(range(len(used), vocab_size)))
    config = TokenizerConfig(
        algorithm=ALGORITHMS[model.trainer_spec.model_type],
        vocab_size=len(model.pieces),
        joint=True,
        sampling=0.0,
        character_coverage=1.0,
        max_sentences=1,
    )
    tags = Tags(targets=ids.codes, both_sides=True)
    try:
        return Tokenizer(config, model.SerializeToString(), None, tags), ids
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"{folder} has a vocabulary that SentencePiece refuses: {reason}"
        ) from error


def _m2m(folder: Path) -> _Vocabulary:
    """``vocab.json`` and ``sentencepiece.bpe.model``; the languages follow the vocabulary."""
    ids = _ids(read_json(folder / "vocab.json"), folder / "vocab.json")
    names: Any = []
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / file).is_file() and isinstance(values := read_json(folder / file), dict):
            names = values.get("additional_special_tokens", names)
            names = values.get("extra_special_tokens", names)
    found = filter(None, map(_M2M_CODE.fullmatch, map(str, typed_value(names, list, str(folder)))))
    codes = {match[1]: len(ids) + index for index, match in enumerate(found)}
    pieces = {name: number for name, number in ids.items() if name not in SYMBOLS}
    return _Vocabulary(read_subwords(folder / "sentencepiece.bpe.model"), pieces, codes)


def _nllb(folder: Path) -> _Vocabulary:
    """``tokenizer.json`` of the library ``tokenizers``."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise InputError(f"{folder} holds neither vocab.json nor tokenizer.json")
    if (own := folder / "tokenizer_config.json").is_file() and isinstance(read_json(own), dict):
        if read_json(own).get("legacy_behaviour"):
            raise InputError(f"{own}: legacy_behaviour puts languages last; only false can be read")
    try:
        values = read_json(file)
        model = values["model"]
        if model["type"] != "BPE":
            raise InputError(f"{file} is of the kind {str(model['type'])[:40]!r}; only BPE")
        added = {one["content"]: one["id"] for one in values["added_tokens"]}
        ids = _ids({**model["vocab"], **added}, file)
        merges = [tuple(one.split(" ") if isinstance(one, str) else one) for one in model["merges"]]
        steps = (values["normalizer"] or {}).get("normalizers", [])
        maps = [one["precompiled_charsmap"] for one in steps if one["type"] == "Precompiled"]
        subwords = _sentencepiece(
            [name for name in ids if name not in added], merges, base64.b64decode("".join(maps[:1]))
        )
    except (LookupError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file} is no tokenizer of NLLB: {str(error)[:80]}") from error
    codes = {name: ids[name] for name in ids if name in added and _NLLB_CODE.fullmatch(name)}
    return _Vocabulary(subwords, {name: ids[name] for name in ids if name not in added}, codes)


def _sentencepiece(names: list[str], merges: list[tuple[str, ...]], charsmap: bytes) -> Any:
    """A SentencePiece model with these merges; raises ValueError if it would merge in other order.

    SentencePiece ranks the result of a merge, not its two parts.
    """
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    ranked = [name for name, _ in groupby(left + right for left, right in merges)]
    known, listed = set(names), set(merges)
    whole = len(set(ranked)) == len(ranked) and all(
        (name[:cut], name[cut:]) in listed
        for name in names
        for cut in range(1, len(name))
        if name[:cut] in known and name[cut:] in known
    )
    if not whole:
        raise ValueError("its merges are not those of SentencePiece")
    scores = {name: -float(index) for index, name in enumerate(ranked)}
    model = messages.ModelProto()
    for name in names:
        score = scores.get(name, -float(len(ranked)))
        model.pieces.add(piece=name, score=score, type=model.SentencePiece.NORMAL)
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.normalizer_spec.precompiled_charsmap = charsmap
    model.normalizer_spec.remove_extra_whitespaces = bool(charsmap)
    return model


def _ids(values: Any, file: Path) -> dict[str, int]:
    """The ids of a vocabulary in their order, with those of the symbols as fairseq has them."""
    ids = dict(typed_value(values, Mapping[str, int], str(file)))
    for symbol, number in SYMBOLS.items():
        if ids.get(symbol) != number:
            raise InputError(f"{file} does not give {symbol} the id {number}, as M2M-100 does")
    return dict(sorted(ids.items(), key=lambda entry: entry[1]))


def _model(found: _Vocabulary, extra: list[int]) -> tuple[Any, ImportedIds]:
    """A SentencePiece model with ids of ours."""
    own, kinds = found.subwords, found.subwords.SentencePiece
    plain = (kinds.NORMAL, kinds.USER_DEFINED, kinds.BYTE, kinds.UNUSED)
    mine = {one.piece: one for one in own.pieces if one.type in plain}
    missing = [name for name in mine if name not in found.pieces]
    rest = [REST, *missing] if missing else []
    model = type(own)()
    model.CopyFrom(own)
    del model.pieces[:]
    for name in (*SYMBOLS, *found.pieces, *map(EXTRA.format, range(len(extra))), *rest):
        if name in mine:
            model.pieces.add(piece=name, score=mine[name].score, type=mine[name].type)
        else:
            kind = kinds.UNKNOWN if name == "<unk>" else kinds.CONTROL
            model.pieces.add(piece=name, score=0.0, type=kind)
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(4)
    spec.vocab_size = len(model.pieces)
    # There, the unknown piece is left out of a translation.
    spec.unk_surface = ""
    rows = [*SYMBOLS.values(), *found.pieces.values(), *extra]
    never = range(len(rows), len(rows) + len(rest))
    rows += [SYMBOLS["<unk>"]] * len(rest) + list(found.codes.values())
    return model, ImportedIds(tuple(rows), tuple(never), tuple(found.codes))
