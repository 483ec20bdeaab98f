"""The vocabulary of a Marian folder of Hugging Face, as a tokenizer of this framework, and back.

There, SentencePiece cuts a text into pieces, ``vocab.json`` gives them ids, which are those of both
sides or, with ``target_vocab.json``, of the source alone. Here, SentencePiece gives the ids:
its model is written anew, with the pieces in the order of ``vocab.json`` after our own symbols.
Pieces that only the other side cuts are UNCUT, so that each text is cut as there. A piece that
``vocab.json`` lacks is unknown there; here it follows the others, and the model gives it the vector
of the unknown piece.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from transformer.common.errors import InputError, errors_name
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
from transformer.interchange.marian.files import read_bytes, read_json

START, UNKNOWN, END = "<pad>", "<unk>", "</s>"
"""Names there; a translation starts with the first. Their ids are the last, 1 and 0."""

_SYMBOLS = (START, UNKNOWN, "<start>", END)
"""Names of our symbols, in the order of their ids; the third starts a translation here."""

_REST = "<rest>"
"""After the pieces of ``vocab.json``."""

ALGORITHMS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}
"""By ``model_type`` of SentencePiece."""


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


class ImportedTokenizer(NamedTuple):
    """A tokenizer, and the ids of both sides of its model."""

    tokenizer: Tokenizer
    source: ImportedIds
    target: ImportedIds


def read_vocabulary(file: Path) -> dict[str, int]:
    """The ids of the pieces in a JSON file; raises InputError as ``checked_ids``."""
    with errors_name(file):
        return checked_ids(typed_value(read_json(file), Mapping[str, int], file.name), file)


def checked_ids(ids: Mapping[str, int], file: Path) -> dict[str, int]:
    """The pieces in the order of their ids; raises InputError if one is missing or there twice."""
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"{file} does not give the ids 0 to {len(ids) - 1} once each")
    return dict(sorted(ids.items(), key=lambda entry: entry[1]))


def import_tokenizer(folder: Path) -> ImportedTokenizer:
    """The tokenizer of a folder of transformers.

    Raises InputError if a file is missing, damaged, or of a kind that cannot be expressed.
    """
    subwords = [read_subwords(folder / f"{side}.spm") for side in ("source", "target")]
    files = [folder / "vocab.json", folder / "target_vocab.json"]
    separate = files[1].is_file()
    return build_tokenizer(subwords, list(map(read_vocabulary, files[: 1 + separate])))


def build_tokenizer(subwords: Sequence[Any], ids: Sequence[Mapping[str, int]]) -> ImportedTokenizer:
    """The tokenizer of the SentencePiece models of both sides, and of one vocabulary or two.

    Raises InputError if a vocabulary is none of Marian, or SentencePiece refuses it.
    """
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
    try:
        return Tokenizer(config, source.SerializeToString(), own, tags)
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"SentencePiece refuses the vocabulary: {reason}") from error


def read_subwords(file: Path) -> Any:
    """The SentencePiece model in a file."""
    model = parse_subwords(read_bytes(file), file)
    if not model.pieces:
        raise InputError(f"{file} is no SentencePiece model: it has no pieces")
    if model.trainer_spec.model_type not in ALGORITHMS:
        raise InputError(f"{file} is neither of the unigram nor of the BPE kind")
    return model


def parse_subwords(content: bytes, name: object = "the vocabulary") -> Any:
    """The SentencePiece model in these bytes; raises InputError if it is none."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise InputError(f"{name} is no SentencePiece model") from error
    return model


def _own(model: Any, ids: Mapping[str, int]) -> tuple[Any, ImportedIds] | None:
    """The model itself, if its pieces have the ids of this framework, as in an export of it."""
    names, codes = [one.piece for one in model.pieces], list(ids)[len(model.pieces) :]
    if [*names, *codes] != list(ids) or ids.get(END) != EOS or not all(map(_is_code, codes)):
        return None
    return model, ImportedIds(tuple(range(len(ids))), (), tuple(code[2:-2] for code in codes))


def _model(own: Any, ids: Mapping[str, int], sides: Sequence[Any]) -> tuple[Any, ImportedIds]:
    """``own`` with the pieces of ``ids`` and of all sides."""
    for symbol, number in ((START, len(ids) - 1), (UNKNOWN, 1), (END, 0)):
        if ids.get(symbol) != number:
            raise InputError(
                f"the vocabulary does not give {symbol} the id {number}, as Marian does"
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
    # A code keeps its number among the pieces, but its vector is that of the tag after them.
    numbers = [len(_SYMBOLS) + index for index, name in enumerate(known) if _is_code(name)]
    rows = [ids[START], ids[UNKNOWN], ids[START], ids[END], *(ids[name] for name in known)]
    rows += [ids[UNKNOWN]] * (1 + len(missing)) + [ids[code] for code in codes]
    never = (PAD, BOS, *numbers, *range(rest, rest + 1 + len(missing)))
    return model, ImportedIds(tuple(rows), never, tuple(code[2:-2] for code in codes))


def plain_subwords(model: Any) -> dict[str, Any]:
    """The pieces that are no symbols, but for those that an import has added, by their names."""
    kinds = model.SentencePiece
    plain = (kinds.NORMAL, kinds.USER_DEFINED, kinds.BYTE, kinds.UNUSED)
    return {p.piece: p for p in model.pieces if p.type in plain and not p.piece.endswith(UNCUT)}


def with_subwords(own: Any, names: Iterable[str], foreign: Collection[str] = ()) -> Any:
    """A SentencePiece model that cuts as ``own`` does, with pieces in another order.

    Names that are no pieces of ``own`` are symbols, or ``foreign``: no text is cut into them.
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
            # BPE merges unused pieces too, and cuts them again: the name is one that no text has,
            # the score one that comes after each merge of ``own``.
            model.pieces.add(piece=name + UNCUT, score=lowest, type=kinds.UNUSED)
        else:
            kind = kinds.UNKNOWN if name == UNKNOWN else kinds.CONTROL
            model.pieces.add(piece=name, score=0.0, type=kind)
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(4)
    spec.vocab_size = len(model.pieces)
    # There, the unknown piece is left out of a translation.
    spec.unk_surface = ""
    return model


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
    """The ids of one side for Marian: those that it was imported with, or our own.

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
