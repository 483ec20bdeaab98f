"""The vocabulary of a Marian folder of Hugging Face as our tokenizer, and back.

In Hugging Face, ``vocab.json`` numbers the pieces of both sides, or those of the source beside a
``target_vocab.json``. In our tokenizer, SentencePiece numbers them: its model is new, with our
symbols and then the pieces in the order of ``vocab.json``. Pieces of the other side alone are
UNCUT: no text is cut into them. Pieces that ``vocab.json`` lacks come last, with the vector of the
unknown piece.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import typed_value
from transformer.data.tokenization.subword_model import UNCUT
from transformer.data.tokenization.tags import Tags, is_tag
from transformer.data.tokenization.tokenizer import (
    BOS,
    EOS,
    PAD,
    UNK,
    Tokenizer,
    TokenizerConfig,
)
from transformer.interchange.files import read_json, readable

START, UNKNOWN, END = "<pad>", "<unk>", "</s>"
"""Symbols of Marian; their ids are the last, 1 and 0. A translation starts with START."""

_SYMBOLS = (START, UNKNOWN, "<start>", END)
"""Our symbols, in the order of their ids; a translation starts with the third."""

_REST = "<rest>"
"""Symbol after the pieces of ``vocab.json``."""

ALGORITHMS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}
"""By ``model_type`` of SentencePiece."""


@dataclass(frozen=True)
class ImportedIds:
    """The ids of one side of an imported model.

    Attributes:
        rows: For each of our ids, the original id whose vector it has.
        never: Our ids without an original id; no translation has them.
        codes: Languages, such as ``deu`` of ``>>deu<<``; they become tags.
    """

    rows: tuple[int, ...]
    never: tuple[int, ...]
    codes: tuple[str, ...]


class ImportedTokenizer(NamedTuple):
    """A tokenizer, and the ids of both sides of its model."""

    tokenizer: Tokenizer
    source: ImportedIds
    target: ImportedIds


def read_vocabulary(file: Path) -> dict[str, int]:
    """The ids of the pieces in a JSON file; raises InputError as ``checked_ids``."""
    return checked_ids(typed_value(read_json(file), Mapping[str, int], str(file)), file)


def checked_ids(ids: Mapping[str, int], file: Path) -> dict[str, int]:
    """The pieces in the order of their ids; raises InputError if an id is missing or repeated."""
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"{file} does not give the ids 0 to {len(ids) - 1} once each")
    return dict(sorted(ids.items(), key=lambda entry: entry[1]))


def import_tokenizer(folder: Path) -> ImportedTokenizer:
    """The tokenizer of a folder of transformers; raises InputError if it cannot be imported."""
    subwords = [read_subwords(folder / f"{side}.spm") for side in ("source", "target")]
    files = [folder / "vocab.json", folder / "target_vocab.json"]
    separate = files[1].is_file()
    return build_tokenizer(subwords, list(map(read_vocabulary, files[: 1 + separate])))


def build_tokenizer(subwords: Sequence[Any], ids: Sequence[Mapping[str, int]]) -> ImportedTokenizer:
    """The tokenizer of the SentencePiece models of both sides, and of one vocabulary or two."""
    cuts = [subwords, subwords] if len(ids) == 1 else [subwords[:1], subwords[1:]]
    sides = zip(subwords, (ids[0], ids[-1]), cuts, strict=True)
    source, target = (_own(one, names) or _model(one, names, cut) for one, names, cut in sides)
    joint = not source[1].never and source[0] == target[0]
    tags = Tags(targets=source[1].codes)
    tokenizer = tokenizer_of(source[0], None if joint else target[0], tags)
    return ImportedTokenizer(tokenizer, source[1], target[1])


def tokenizer_of(source: Any, target: Any, tags: Tags) -> Tokenizer:
    """The tokenizer of one SentencePiece model or two; raises InputError if one is refused."""
    config = TokenizerConfig(
        algorithm=ALGORITHMS[source.trainer_spec.model_type],
        vocab_size=len(source.pieces),
        joint=target is None,
        sampling=0.0,
        character_coverage=1.0,
        max_sentences=1,
    )
    own = None if target is None else target.SerializeToString()
    with readable("the vocabulary for SentencePiece"):
        return Tokenizer(config, source.SerializeToString(), own, tags)


def read_subwords(file: Path) -> Any:
    """The SentencePiece model in a file."""
    from google.protobuf.message import DecodeError

    with readable(file, DecodeError):
        model = parse_subwords(file.read_bytes())
    if not model.pieces or model.trainer_spec.model_type not in ALGORITHMS:
        raise InputError(f"{file} is no SentencePiece model of the unigram or the BPE kind")
    return model


def parse_subwords(content: bytes) -> Any:
    """The SentencePiece model in these bytes."""
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto()
    model.ParseFromString(content)
    return model


def _own(model: Any, ids: Mapping[str, int]) -> tuple[Any, ImportedIds] | None:
    """The model itself, if its pieces have our ids, as in our own exports."""
    names, codes = [one.piece for one in model.pieces], list(ids)[len(model.pieces) :]
    if [*names, *codes] != list(ids) or ids.get(END) != EOS or not all(map(_is_code, codes)):
        return None
    return model, ImportedIds(tuple(range(len(ids))), (), tuple(code[2:-2] for code in codes))


def _model(own: Any, ids: Mapping[str, int], sides: Sequence[Any]) -> tuple[Any, ImportedIds]:
    """``own`` with the pieces of ``ids`` and of all sides."""
    raise_objections(
        f"the vocabulary does not give {symbol} the id {number}, as Marian does"
        for symbol, number in ((START, len(ids) - 1), (UNKNOWN, 1), (END, 0))
        if ids.get(symbol) != number
    )
    mine = plain_subwords(own)
    cut = dict.fromkeys(chain.from_iterable(map(plain_subwords, sides)))
    known = [name for name in ids if name not in (START, UNKNOWN, END)]
    missing = [name for name in cut if name not in ids]
    foreign = {name for name in (*known, *missing) if name not in mine and not _is_code(name)}
    names = (*_SYMBOLS, *known, _REST, *missing)
    model = with_subwords(own, names, foreign - {*_SYMBOLS, _REST})
    rest = len(_SYMBOLS) + len(known)
    codes = [name for name in known if _is_code(name)]
    # A code keeps its number among the pieces; the tag after them has its vector.
    numbers = [len(_SYMBOLS) + index for index, name in enumerate(known) if _is_code(name)]
    rows = [ids[START], ids[UNKNOWN], ids[START], ids[END], *(ids[name] for name in known)]
    rows += [ids[UNKNOWN]] * (1 + len(missing)) + [ids[code] for code in codes]
    never = (PAD, BOS, *numbers, *range(rest, rest + 1 + len(missing)))
    return model, ImportedIds(tuple(rows), never, tuple(code[2:-2] for code in codes))


def plain_subwords(model: Any) -> dict[str, Any]:
    """The pieces of the model without symbols and UNCUT pieces, by their names."""
    kinds = model.SentencePiece
    plain = (kinds.NORMAL, kinds.USER_DEFINED, kinds.BYTE, kinds.UNUSED)
    return {p.piece: p for p in model.pieces if p.type in plain and not p.piece.endswith(UNCUT)}


def with_subwords(own: Any, names: Iterable[str], foreign: Collection[str] = ()) -> Any:
    """A SentencePiece model that cuts as ``own`` does, with pieces in another order.

    Other names are symbols, or ``foreign``: no text is cut into them.
    """
    mine, kinds = plain_subwords(own), own.SentencePiece
    lowest = min((one.score for one in mine.values()), default=0.0) - 1.0
    model = type(own)()
    model.CopyFrom(own)
    del model.pieces[:]
    for name in names:
        if name in mine:
            model.pieces.add(piece=name, score=mine[name].score, type=mine[name].type)
        elif name in foreign:
            # BPE merges unused pieces and cuts them again: no text must have this name, and its
            # score must come after each merge of ``own``.
            model.pieces.add(piece=name + UNCUT, score=lowest, type=kinds.UNUSED)
        else:
            kind = kinds.UNKNOWN if name == UNKNOWN else kinds.CONTROL
            model.pieces.add(piece=name, score=0.0, type=kind)
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(4)
    spec.vocab_size = len(model.pieces)
    # Marian leaves the unknown piece out of a translation.
    spec.unk_surface = ""
    return model


def _is_code(name: str) -> bool:
    return name.startswith(">>") and name.endswith("<<") and len(name) > 4


@dataclass(frozen=True)
class ExportedIds:
    """The vocabulary of one side for another program.

    Attributes:
        names: In the order of the exported ids.
        rows: For each exported id, our id whose vector it has.
        start: The exported id with which a translation starts.
        end: The exported id of the end of a sentence.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    start: int
    end: int


def export_ids(spelt: Sequence[str]) -> ExportedIds:
    """The ids of one side for Marian: those of its import, or our own.

    ``spelt`` are all subwords and tags. Raises InputError for tags other than target languages.
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
