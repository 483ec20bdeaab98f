"""The vocabulary of a Marian folder of Hugging Face, as a tokenizer of this framework, and back.

There, SentencePiece cuts a text into pieces, ``vocab.json`` gives them ids, which are those of both
sides or, with ``target_vocab.json``, of the source alone. Here, SentencePiece gives the ids:
its model is written anew, with the pieces in the order of ``vocab.json`` after our own symbols.
Pieces that only the other side cuts are marked unused, so that each text is cut as there. A piece
that ``vocab.json`` lacks is unknown there; here it follows the others, and the model gives it the
vector of the unknown piece.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformer.common.errors import InputError
from transformer.common.schema import typed_value
from transformer.data.tokenization.tags import Tags, is_tag
from transformer.data.tokenization.tokenizer import (
    BOS,
    EOS,
    PAD,
    UNK,
    Tokenizer,
    TokenizerConfig,
)

START, UNKNOWN, END = "<pad>", "<unk>", "</s>"
"""Names there; a translation starts with the first. Their ids are the last, 1 and 0."""

_SYMBOLS = (START, UNKNOWN, "<start>", END)
"""Names of our symbols, in the order of their ids; the third starts a translation here."""

_REST = "<rest>"
"""After the pieces of ``vocab.json``."""

_UNKNOWN_PENALTY = 10.0
"""Of SentencePiece, for a character that it does not know."""

ALGORITHMS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}
"""By ``model_type`` of SentencePiece."""

_MOST_BYTES = 200_000_000
"""Of a file of a vocabulary."""


@dataclass(frozen=True)
class ImportedIds:
    """The ids of one side of an imported model.

    Attributes:
        rows: For each of our ids the id there whose vector it has.
        never: Ids of ours that are no id there; no translation has them.
        codes: Languages, such as ``deu`` of ``>>deu<<``; they are tags here.
    """

    rows: tuple[int, ...]
    never: tuple[int, ...]
    codes: tuple[str, ...]


def read_vocabulary(folder: Path, name: str) -> dict[str, int]:
    """The ids of the pieces, in the order of the ids.

    Raises:
        InputError: The file is missing or damaged, or an id is there twice or missing.
    """
    file = folder / name
    values = read_json(file)
    try:
        ids = dict(typed_value(values, Mapping[str, int], name))
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"{file} does not give the ids 0 to {len(ids) - 1} once each")
    for symbol, number in ((START, len(ids) - 1), (UNKNOWN, 1), (END, 0)):
        if ids.get(symbol) != number:
            raise InputError(f"{file} does not give {symbol} the id {number}, as Marian does")
    return dict(sorted(ids.items(), key=lambda entry: entry[1]))


def read_json(file: Path) -> Any:
    """The content of a JSON file; raises InputError if it is missing or damaged."""
    try:
        return json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is damaged: {' '.join(str(error).split())[:80]}") from error


def read_bytes(file: Path) -> bytes:
    """The content of a file; raises InputError if it is missing or too large."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InputError(f"{file} is larger than {_MOST_BYTES:,} bytes")
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error


def import_tokenizer(folder: Path) -> tuple[Tokenizer, ImportedIds, ImportedIds]:
    """The tokenizer of a folder, and the ids of both sides.

    Raises:
        InputError: A file is missing, damaged, or of a kind that cannot be expressed.
    """
    subwords = {side: read_subwords(folder / f"{side}.spm") for side in ("source", "target")}
    if any(ALGORITHMS[one.trainer_spec.model_type] == "bpe" for one in subwords.values()):
        raise InputError(f"{folder}: a Marian model with BPE cannot be imported, only unigram")
    separate = (folder / "target_vocab.json").is_file()
    ids = read_vocabulary(folder, "vocab.json")
    if separate:
        target_ids = read_vocabulary(folder, "target_vocab.json")
        source = _model(subwords["source"], ids, [subwords["source"]])
        target = _model(subwords["target"], target_ids, [subwords["target"]])
    else:
        both = list(subwords.values())
        source, target = (_model(one, ids, both) for one in both)
    config = TokenizerConfig(
        algorithm="unigram",
        vocab_size=len(source[0].pieces),
        joint=False,
        sampling=0.0,
        character_coverage=1.0,
        max_sentences=1,
    )
    tags = Tags(targets=source[1].codes)
    models = [one[0].SerializeToString() for one in (source, target)]
    return Tokenizer(config, models[0], models[1], tags), source[1], target[1]


def read_subwords(file: Path) -> Any:
    """The SentencePiece model in a file."""
    model = parse_subwords(read_bytes(file), file)
    if not model.pieces:
        raise InputError(f"{file} is no SentencePiece model: it has no pieces")
    if model.trainer_spec.model_type not in ALGORITHMS:
        raise InputError(f"{file} is neither of the unigram nor of the BPE kind")
    return model


def parse_subwords(content: bytes, name: object = "the vocabulary") -> Any:
    """The SentencePiece model in these bytes."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise InputError(f"{name} is no SentencePiece model") from error
    return model


def _model(own: Any, ids: Mapping[str, int], sides: Sequence[Any]) -> tuple[Any, ImportedIds]:
    """A SentencePiece model that cuts as ``own`` does, with ids of ours."""
    kinds = own.SentencePiece
    plain = (kinds.NORMAL, kinds.USER_DEFINED, kinds.BYTE)
    mine = {one.piece: one for one in own.pieces if one.type in plain}
    cut = dict.fromkeys(one.piece for side in sides for one in side.pieces if one.type in plain)
    known = [name for name in ids if name not in (START, UNKNOWN, END)]
    missing = [name for name in cut if name not in ids]
    # A character that SentencePiece does not know costs so much. There, the vocabulary may know it.
    unknown = min(one.score for one in mine.values()) - _UNKNOWN_PENALTY
    model = type(own)()
    model.CopyFrom(own)
    del model.pieces[:]
    for name in (*_SYMBOLS, *known, _REST, *missing):
        if name in mine:
            model.pieces.add(piece=name, score=mine[name].score, type=mine[name].type)
        elif name == UNKNOWN:
            model.pieces.add(piece=name, score=0.0, type=kinds.UNKNOWN)
        elif name in (*_SYMBOLS, _REST) or _is_code(name):
            model.pieces.add(piece=name, score=0.0, type=kinds.CONTROL)
        elif len(name) == 1:
            model.pieces.add(piece=name, score=unknown, type=kinds.NORMAL)
        else:
            model.pieces.add(piece=name, score=0.0, type=kinds.UNUSED)
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(4)
    spec.vocab_size = len(model.pieces)
    # There, the unknown piece is left out of a translation.
    spec.unk_surface = ""
    rest = len(_SYMBOLS) + len(known)
    codes = [name for name in known if _is_code(name)]
    # A code keeps its number among the pieces, but its vector is that of the tag after them.
    numbers = [len(_SYMBOLS) + index for index, name in enumerate(known) if _is_code(name)]
    rows = [ids[START], ids[UNKNOWN], ids[START], ids[END], *(ids[name] for name in known)]
    rows += [ids[UNKNOWN]] * (1 + len(missing)) + [ids[code] for code in codes]
    never = (PAD, BOS, *numbers, *range(rest, rest + 1 + len(missing)))
    return model, ImportedIds(tuple(rows), never, tuple(code[2:-2] for code in codes))


def _is_code(name: str) -> bool:
    return name.startswith(">>") and name.endswith("<<") and len(name) > 4


@dataclass(frozen=True)
class ExportedIds:
    """The vocabulary of one side for another program.

    Attributes:
        names: Of its ids, in their order.
        rows: For each of them our id whose vector it has.
        start: The id with which a translation starts.
        end: That of the end of a sentence.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    start: int
    end: int


def export_ids(spelt: Sequence[str]) -> ExportedIds:
    """The ids of a vocabulary for Marian: those that it was imported with, or our own.

    Args:
        spelt: All subwords and tags of one side, by our ids.

    Raises:
        InputError: It has tags of another kind than languages to translate into.
    """
    codes = {f">>{name[3:-1]}<<": number for number, name in enumerate(spelt) if name[:3] == "<2 "}
    if other := [name for name in spelt if is_tag(name) and name[:3] != "<2 "]:
        raise InputError(f"Marian has no symbol for {other[0]}; only tags of languages")
    if _REST not in spelt:
        own = tuple(name for name in spelt if not is_tag(name))
        return ExportedIds((*own, *codes), tuple(range(len(spelt))), BOS, EOS)
    subwords = spelt[len(_SYMBOLS) : spelt.index(_REST)]
    names = (END, UNKNOWN, *subwords, START)
    numbers = [codes.get(name, len(_SYMBOLS) + index) for index, name in enumerate(subwords)]
    return ExportedIds(names, (EOS, UNK, *numbers, BOS), len(names) - 1, 0)
