"""The vocabulary of a Marian or Pegasus folder of transformers as our tokenizer, and back.

``vocab.json`` numbers the pieces of both sides, or those of the source beside a
``target_vocab.json``. In our tokenizer, SentencePiece numbers them: its model is new, with our
symbols and then the pieces in the order of ``vocab.json``. Pieces of the other side alone are
UNCUT: no text is cut into them. Pieces that ``vocab.json`` lacks come last, with the vector of the
unknown piece.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError, raise_objections
from transformer.data.tokenization.tags import Tags, is_tag
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.subwords import (
    UNKNOWN,
    ExportedIds,
    ImportedIds,
    ImportedTokenizer,
    plain_subwords,
    read_subwords,
    read_vocabulary,
    tokenizer_of,
    with_subwords,
)
from transformer.interchange.files import write_json
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

START = "<pad>"
"""The symbol with which a translation starts; Marian gives it the last id, and UNKNOWN the id 1."""

END = "</s>"
"""The symbol with the id 0."""

_SYMBOLS = (START, UNKNOWN, "<start>", END)
"""Our symbols, in the order of their ids; a translation starts with the third."""

_REST = "<rest>"
"""Symbol after the pieces of ``vocab.json``."""


def import_tokenizer(folder: Path, _vocab_size: Any = None) -> ImportedTokenizer:
    """The tokenizer of a folder of transformers; raises InputError if it cannot be imported."""
    subwords = [read_subwords(folder / f"{side}.spm") for side in ("source", "target")]
    files = [folder / "vocab.json"]
    if (folder / "target_vocab.json").is_file():
        files.append(folder / "target_vocab.json")
    return build_tokenizer(subwords, list(map(read_vocabulary, files)))


def build_tokenizer(subwords: Sequence[Any], ids: Sequence[Mapping[str, int]]) -> ImportedTokenizer:
    """The tokenizer of the SentencePiece models of both sides, and of one vocabulary or two."""
    source_model, target_model = subwords
    if len(ids) == 1:
        source, source_ids = _with_ids(source_model, ids[0], subwords)
        target, target_ids = _with_ids(target_model, ids[0], subwords)
    else:
        source, source_ids = _with_ids(source_model, ids[0], [source_model])
        target, target_ids = _with_ids(target_model, ids[1], [target_model])
    joint = not source_ids.never and source == target
    tags = Tags(targets=source_ids.codes)
    tokenizer = tokenizer_of(source, None if joint else target, tags)
    return ImportedTokenizer(tokenizer, source_ids, target_ids)


def _with_ids(
    original: Any, ids: Mapping[str, int], sides: Sequence[Any]
) -> tuple[Any, ImportedIds]:
    """A model that cuts as the original does, with the pieces of ``ids`` and of all sides.

    It is the original itself if its pieces have our ids, as in our own exports.
    """
    pieces = [piece.piece for piece in original.pieces]
    codes = list(ids)[len(pieces) :]
    if [*pieces, *codes] == list(ids) and ids.get(END) == EOS and all(map(_is_code, codes)):
        return original, ImportedIds(tuple(range(len(ids))), (), _languages(codes))
    raise_objections(
        f"the vocabulary does not give {symbol} the id {number}, as Marian does"
        for symbol, number in ((START, len(ids) - 1), (UNKNOWN, 1), (END, 0))
        if ids.get(symbol) != number
    )
    plain = plain_subwords(original)
    needed = dict.fromkeys(chain.from_iterable(map(plain_subwords, sides)))
    known = [name for name in ids if name not in (START, UNKNOWN, END)]
    missing = [name for name in needed if name not in ids]
    foreign = {name for name in (*known, *missing) if name not in plain and not _is_code(name)}
    names = (*_SYMBOLS, *known, _REST, *missing)
    model = with_subwords(original, names, foreign - {*_SYMBOLS, _REST})
    rest = len(_SYMBOLS) + len(known)
    codes = [name for name in known if _is_code(name)]
    # A code keeps its number among the pieces; the tag after them has its vector.
    numbers = [len(_SYMBOLS) + index for index, name in enumerate(known) if _is_code(name)]
    rows = [ids[START], ids[UNKNOWN], ids[START], ids[END], *(ids[name] for name in known)]
    rows += [ids[UNKNOWN]] * (1 + len(missing)) + [ids[code] for code in codes]
    never = (PAD, BOS, *numbers, *range(rest, rest + 1 + len(missing)))
    return model, ImportedIds(tuple(rows), never, _languages(codes))


def _is_code(name: str) -> bool:
    return name.startswith(">>") and name.endswith("<<") and len(name) > 4


def _languages(codes: Sequence[str]) -> tuple[str, ...]:
    return tuple(code[2:-2] for code in codes)


def export_tokenizer(
    translator: Translator, run: RunConfig, folder: Path
) -> tuple[ExportedIds, ExportedIds]:
    """Write the files and return the ids; raises InputError for tags that are no languages."""
    tokenizer = translator.tokenizer
    source = _export_ids(tokenizer.source_subwords(range(tokenizer.source_vocab_size)))
    target = _export_ids(tokenizer.subwords(range(tokenizer.target_vocab_size)))
    separate = translator.model.config.tie_embeddings != "all"
    state = tokenizer.to_state()
    for side in ("source", "target"):
        model = state[side] if state[side] is not None else state["source"]
        (folder / f"{side}.spm").write_bytes(bytes(model.numpy()))
    for name, ids in {"vocab.json": source, "target_vocab.json": target}.items():
        if ids is source or separate:
            write_json({piece: number for number, piece in enumerate(ids.names)}, folder / name)
    values = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": run.data.source,
        "target_lang": run.data.target,
        "separate_vocabs": separate,
        "model_max_length": run.model.source_positions,
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "clean_up_tokenization_spaces": False,
    }
    write_json(values, folder / "tokenizer_config.json")
    return source, target


def _export_ids(names: Sequence[str]) -> ExportedIds:
    """The ids of the subwords and tags of one side: those of its import, or our own."""
    codes = {}
    for number, name in enumerate(names):
        if name.startswith("<2 "):
            codes[f">>{name[3:-1]}<<"] = number
        elif is_tag(name):
            raise InputError(f"Marian has no symbol for {name}; only tags of languages")
    if _REST not in names:
        plain = tuple(name for name in names if not is_tag(name))
        return ExportedIds((*plain, *codes), tuple(range(len(names))), PAD, EOS, EOS, BOS)
    subwords = names[len(_SYMBOLS) : names.index(_REST)]
    exported = (END, UNKNOWN, *subwords, START)
    numbers = [codes.get(name, len(_SYMBOLS) + index) for index, name in enumerate(subwords)]
    last = len(exported) - 1
    return ExportedIds(exported, (EOS, UNK, *numbers, BOS), last, 0, 0, last)
