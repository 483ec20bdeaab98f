"""Vocabularies of other programs as SentencePiece models, and their ids."""

import base64
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from transformer.common.errors import InputError, readable
from transformer.common.schema import typed_value
from transformer.data.tokenization.subword_model import UNCUT
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.files import read_json
from transformer.model.transformer import Transformer
from transformer.settings.tokenizer import TokenizerConfig

UNKNOWN = "<unk>"

EXTRA = "<extra{}>"
"""Our names of ids without a name."""

ALGORITHMS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}
"""By ``model_type`` of SentencePiece."""

NEVER = -100.0
"""Bias of symbols that no translation has. Label smoothing averages over the vocabulary, so that a
much lower bias would be most of the loss."""

NEVER_TRAINED = NEVER / 2
"""A symbol with a lower bias is one that no translation has, also after training."""


@dataclass(frozen=True)
class ImportedIds:
    """The ids of one side of an imported model.

    Attributes:
        rows: For each of our ids, the original id whose vector it has.
        never: Our ids without an original id; no translation has them.
        codes: Languages, such as ``deu`` of ``>>deu<<``; they become tags.
        padding: The original id of padding, if our padding has the vector of another.
    """

    rows: tuple[int, ...]
    never: tuple[int, ...]
    codes: tuple[str, ...]
    padding: int | None = None


class ImportedTokenizer(NamedTuple):
    """A tokenizer, and the ids of both sides of its model."""

    tokenizer: Tokenizer
    source: ImportedIds
    target: ImportedIds


@dataclass(frozen=True)
class ExportedIds:
    """The vocabulary of one side for another program.

    Attributes:
        names: In the order of the exported ids.
        rows: For each exported id, our id whose vector it has.
        pad, bos, eos: The exported ids of the symbols.
        start: The exported id with which a translation starts.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    pad: int
    bos: int
    eos: int
    start: int


def read_vocabulary(file: Path) -> dict[str, int]:
    """The ids of the pieces in a JSON file; raises InputError as ``checked_ids``."""
    return checked_ids(typed_value(read_json(file), Mapping[str, int], str(file)), file)


def checked_ids(ids: Mapping[str, int], file: Path) -> dict[str, int]:
    """The pieces in the order of their ids; raises InputError if an id is missing or repeated."""
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"{file} does not give the ids 0 to {len(ids) - 1} once each")
    return dict(sorted(ids.items(), key=lambda entry: entry[1]))


def read_subwords(file: Path) -> Any:
    """The SentencePiece model in a file."""
    from google.protobuf.message import DecodeError

    with readable(file, DecodeError):
        model = parse_subwords(file.read_bytes())
    if not model.pieces or model.trainer_spec.model_type not in ALGORITHMS:
        raise InputError(f"{file} is no SentencePiece model of the unigram or the BPE kind")
    return model


def parse_subwords(content: bytes) -> Any:
    """The SentencePiece model in these bytes; an empty one without any."""
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    return messages.ModelProto.FromString(content)


def read_unigram(file: Path) -> Any:
    """The SentencePiece model in a ``tokenizer.json`` of the library ``tokenizers``."""
    values = read_json(file)
    with readable(file):
        if values["model"]["type"] != "Unigram":
            raise ValueError(f"its model is {values['model']['type']}, not Unigram")
        added = values["added_tokens"]
        special = {str(token["content"]) for token in added if token["special"]}
        model = parse_subwords(b"")
        kinds = model.SentencePiece
        for number, (name, score) in enumerate(values["model"]["vocab"]):
            kind = kinds.CONTROL if name in special else kinds.NORMAL
            kind = kinds.UNKNOWN if number == values["model"]["unk_id"] else kind
            model.pieces.add(piece=name, score=score, type=kind)
        model.normalizer_spec.precompiled_charsmap = charsmap(values)
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    return model


def charsmap(values: Mapping[str, Any]) -> bytes:
    """The characters that the normalizer of a ``tokenizer.json`` replaces, for SentencePiece."""
    normalizer = values["normalizer"] or {}
    steps = normalizer.get("normalizers", [normalizer])
    maps = [step["precompiled_charsmap"] for step in steps if step.get("type") == "Precompiled"]
    return base64.b64decode(maps[0]) if maps else b""


def has_learned_bias(model: Transformer) -> bool:
    """Whether the output has a bias besides that of symbols that no translation has."""
    bias = model.projection.bias
    return bias is not None and bool(((bias != 0) & (bias >= NEVER_TRAINED)).any())


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
    target_model = None if target is None else target.SerializeToString()
    with readable("the vocabulary for SentencePiece"):
        return Tokenizer(config, source.SerializeToString(), target_model, tags)


def plain_subwords(model: Any) -> dict[str, Any]:
    """The pieces of the model without symbols and UNCUT pieces, by their names."""
    kinds = model.SentencePiece
    plain = (kinds.NORMAL, kinds.USER_DEFINED, kinds.BYTE, kinds.UNUSED)
    return {p.piece: p for p in model.pieces if p.type in plain and not p.piece.endswith(UNCUT)}


def with_subwords(
    original: Any, names: Iterable[str], foreign: Collection[str] = (), words: Collection[str] = ()
) -> Any:
    """A SentencePiece model that cuts as the original does, with pieces in another order.

    Other names are symbols, or ``foreign``: no text is cut into them. Text is cut into ``words``
    before all others.
    """
    plain = plain_subwords(original)
    kinds = original.SentencePiece
    lowest = min((piece.score for piece in plain.values()), default=0.0) - 1.0
    # Only what decides how a text is cut: the rest would change with each export and import.
    model = parse_subwords(b"")
    model.normalizer_spec.CopyFrom(original.normalizer_spec)
    model.normalizer_spec.ClearField("name")
    for field in ("model_type", "byte_fallback", "treat_whitespace_as_suffix"):
        value = getattr(original.trainer_spec, field)
        if value:
            setattr(model.trainer_spec, field, value)
    for name in names:
        if name in words:
            model.pieces.add(piece=name, score=0.0, type=kinds.USER_DEFINED)
        elif name in plain:
            model.pieces.add(piece=name, score=plain[name].score, type=plain[name].type)
        elif name in foreign:
            # BPE merges unused pieces and cuts them again: no text must have this name, and its
            # score must come after each merge of the original.
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
