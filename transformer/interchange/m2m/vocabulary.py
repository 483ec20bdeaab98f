"""The vocabulary of an M2M-100 or NLLB folder of Hugging Face, as a tokenizer of this framework.

M2M-100 has a SentencePiece model, whose pieces ``vocab.json`` numbers; NLLB a ``tokenizer.json``
with the merges of BPE. Here, SentencePiece gives the ids: its model is written anew, with our
symbols, the pieces in the order of their ids there, and what comes after the languages there. The
languages are tags. Source: transformers 5, ``models/m2m_100``, ``models/nllb``.
"""

import base64
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.schema import typed_value
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig
from transformer.interchange.marian.vocabulary import (
    ALGORITHMS,
    ImportedIds,
    ImportedTokenizer,
    read_json,
    read_subwords,
    read_vocabulary,
)

SYMBOLS = {"<pad>": 1, "<unk>": 3, "<s>": 0, "</s>": 2}
"""Our symbols in their order, with their ids there."""

EXTRA, REST = "<extra{}>", "<rest>"
"""Names of ids after the languages, and before pieces that ``vocab.json`` lacks."""

_MOST_EXTRA = 1000
_CODE = re.compile(r"__([\w-]+)__|([a-z]{3}_[A-Z][a-z]{3})")
"""A language of M2M-100, and of NLLB."""

Ids = dict[str, int]


def import_tokenizer(folder: Path, vocab_size: int) -> ImportedTokenizer:
    """The tokenizer of a folder, and its ids there.

    Raises:
        InputError: A file is missing, damaged, or of a kind that cannot be expressed.
    """
    subwords, ids, codes = (_m2m if (folder / "vocab.json").is_file() else _nllb)(folder)
    used = [*ids.values(), *codes.values()]
    if not codes or {name: ids.pop(name, -1) for name in SYMBOLS} != SYMBOLS:
        raise InputError(f"{folder} lacks language codes, or <s>, <pad>, </s>, <unk> as ids 0 to 3")
    if used != list(range(len(used))) or not 0 <= vocab_size - len(used) <= _MOST_EXTRA:
        raise InputError(
            f"{folder}: pieces and languages must have the first ids, without a gap; there are "
            f"{len(used)} of them, and config.json has vocab_size={vocab_size}"
        )
    model, own = _model(subwords, ids, codes, list(range(len(used), vocab_size)))
    config = TokenizerConfig(
        algorithm=ALGORITHMS[model.trainer_spec.model_type],
        vocab_size=len(model.pieces),
        joint=True,
        sampling=0.0,
        character_coverage=1.0,
        max_sentences=1,
    )
    tags = Tags(targets=own.codes, both_sides=True)
    try:
        tokenizer = Tokenizer(config, model.SerializeToString(), None, tags)
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"SentencePiece refuses the vocabulary: {reason}") from error
    return ImportedTokenizer(tokenizer, own, own)


def _m2m(folder: Path) -> tuple[Any, Ids, Ids]:
    """SentencePiece, ids and languages of M2M-100; the languages follow the vocabulary."""
    ids, names = read_vocabulary(folder / "vocab.json"), _settings(folder)
    special = names.get("extra_special_tokens", names.get("additional_special_tokens", []))
    found = [_CODE.fullmatch(str(name)) for name in typed_value(special, list, "special tokens")]
    codes = [match[1] for match in found if match]
    return (
        read_subwords(folder / "sentencepiece.bpe.model"),
        ids,
        {code: len(ids) + index for index, code in enumerate(codes)},
    )


def _nllb(folder: Path) -> tuple[Any, Ids, Ids]:
    """The same of NLLB, from the ``tokenizer.json`` of the library ``tokenizers``."""
    if not (file := folder / "tokenizer.json").is_file():
        raise InputError(f"{folder} holds neither vocab.json nor tokenizer.json")
    if _settings(folder).get("legacy_behaviour"):
        raise InputError(f"{folder}: only a tokenizer with legacy_behaviour=false can be imported")
    try:
        values = read_json(file)
        model = values["model"]
        added = {str(one["content"]): int(one["id"]) for one in values["added_tokens"]}
        every = {**{str(name): int(one) for name, one in model["vocab"].items()}, **added}
        ids = dict(sorted(every.items(), key=lambda entry: entry[1]))
        merges = [tuple(one.split(" ") if isinstance(one, str) else one) for one in model["merges"]]
        steps = (values["normalizer"] or {}).get("normalizers", [])
        maps = [one["precompiled_charsmap"] for one in steps if one["type"] == "Precompiled"]
        pieces = [name for name in ids if name not in added]
        subwords = _sentencepiece(pieces, merges, base64.b64decode("".join(maps[:1])))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file} is no tokenizer of NLLB: {str(error)[:80]}") from error
    codes = {name: ids[name] for name in ids if name in added and _CODE.fullmatch(name)}
    return subwords, {name: ids[name] for name in ids if name not in added.keys() - SYMBOLS}, codes


def _settings(folder: Path) -> dict[str, Any]:
    """What the folder says about its tokenizer."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file() and isinstance(values := read_json(folder / name), dict):
            found |= values
    return found


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


def _model(own: Any, ids: Ids, codes: Ids, extra: list[int]) -> tuple[Any, ImportedIds]:
    """A SentencePiece model that cuts as ``own`` does, with ids of ours."""
    kinds = own.SentencePiece
    plain = (kinds.NORMAL, kinds.USER_DEFINED, kinds.BYTE, kinds.UNUSED)
    mine = {one.piece: one for one in own.pieces if one.type in plain}
    missing = [name for name in mine if name not in ids]
    rest = [REST, *missing] if missing else []
    model = type(own)()
    model.CopyFrom(own)
    del model.pieces[:]
    for name in (*SYMBOLS, *ids, *map(EXTRA.format, range(len(extra))), *rest):
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
    rows = [*SYMBOLS.values(), *ids.values(), *extra]
    never = range(len(rows), len(rows) + len(rest))
    rows += [SYMBOLS["<unk>"]] * len(rest) + list(codes.values())
    return model, ImportedIds(tuple(rows), tuple(never), tuple(codes))
