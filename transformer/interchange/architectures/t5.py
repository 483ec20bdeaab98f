"""The tokenizer of a T5, mT5 or MADLAD-400 folder of transformers as ours, and back.

``spiece.model`` or ``tokenizer.json`` has symbols and pieces, sentinels follow, then ids without a
name up to ``vocab_size``. Translations start with id 0: ``<pad>`` of T5, ``<unk>`` of MADLAD-400.
Our start symbol has its vector, and our padding the last id without a name, so that each id is one
of ours. Where every id has a name, one symbol of ours has the vector of another, and no translation
has it. Source: transformers 5, ``models/t5/tokenization_t5.py``.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.schema import typed_value
from transformer.data.tokenization.tags import Tags
from transformer.decoding.translator import Translator
from transformer.interchange.architectures import bart
from transformer.interchange.architectures.subwords import (
    EXTRA,
    UNKNOWN,
    ExportedIds,
    ImportedIds,
    ImportedTokenizer,
    parse_subwords,
    read_subwords,
    read_unigram,
    tokenizer_of,
    with_subwords,
)
from transformer.interchange.files import read_mapping
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, SENTINEL, UNK

START = 0
"""The id with which a translation starts."""

_SENTINEL = re.compile(r"<extra_id_\d+>")
_END = "</s>"
_LAYOUTS = (("<pad>", _END, UNKNOWN), (UNKNOWN, "<s>", _END))
"""The symbols of T5 and of MADLAD-400, by their ids; the padding of the latter is ``<s>``."""

_NONE = "<none>"
"""Our name of a symbol without an id of its own."""


def import_tokenizer(folder: Path, vocab_size: Any) -> ImportedTokenizer:
    """The tokenizer of a folder, and its ids; raises InputError if it cannot be imported."""
    vocab_size = typed_value(vocab_size, int, "config.json.vocab_size")
    for name in ("config.json", "tokenizer_config.json"):
        if read_mapping(folder / name, optional=True).get("tokenizer_class") == "ByT5Tokenizer":
            return bart.import_tokenizer(folder, vocab_size, "bytes")
    original = _read(folder)
    names = [piece.piece for piece in original.pieces]
    layout = tuple(names[:3])
    if layout not in _LAYOUTS or not len(names) <= vocab_size < len(names) + 2**16:
        raise InputError(
            f"{folder}: its tokenizer must begin with {' or '.join(map(', '.join, _LAYOUTS))}, and "
            f"have at most vocab_size={vocab_size} pieces and sentinels, not {len(names)}"
        )
    names += map(EXTRA.format, range(len(names), vocab_size))
    original_padding = layout.index("<pad>" if "<pad>" in layout else "<s>")
    padding = original_padding
    if padding == START and names[-1] == EXTRA.format(vocab_size - 1):
        padding = vocab_size - 1
    symbols = (padding, layout.index(UNKNOWN), START, layout.index(_END))
    never: tuple[int, ...] = ()
    if padding == START:
        never = (PAD,)
    elif symbols[UNK] == START:
        never = (BOS,)
    rest = [number for number in range(vocab_size) if number not in symbols]
    ours = [_NONE if our in never else names[number] for our, number in enumerate(symbols)]
    ours += [names[number] for number in rest]
    words = frozenset(filter(_SENTINEL.fullmatch, ours))
    imported = ImportedIds((*symbols, *rest), never, (), original_padding)
    model = with_subwords(original, ours, words=words)
    return ImportedTokenizer(tokenizer_of(model, None, Tags()), imported, imported)


def _read(folder: Path) -> Any:
    """The SentencePiece model of a folder, with its sentinels."""
    file = folder / "spiece.model"
    if not file.is_file():
        return read_unigram(folder / "tokenizer.json")
    model = read_subwords(file)
    values = read_mapping(folder / "tokenizer_config.json", optional=True)
    count = typed_value(values.get("extra_ids", 100), int, "tokenizer_config.json.extra_ids")
    if not 0 <= count <= 1000:
        raise InputError(f"{folder}: tokenizer_config.json.extra_ids={count} must be 0 to 1000")
    for number in reversed(range(count)):
        model.pieces.add(piece=SENTINEL.format(number), score=0.0, type=model.SentencePiece.CONTROL)
    return model


def export_tokenizer(
    translator: Translator, run: RunConfig, folder: Path
) -> tuple[ExportedIds, ExportedIds]:
    """Write the files and return the ids; raises InputError for tags or two vocabularies."""
    import transformers

    library: Any = transformers
    tokenizer = translator.tokenizer
    if tokenizer.config.algorithm == "bytes":
        return bart.export_tokenizer(translator, run, folder)
    if not tokenizer.joint or tokenizer.tags != Tags():
        raise InputError("T5 has no two vocabularies, and no tags")
    model = parse_subwords(bytes(tokenizer.to_state()["source"].numpy()))
    unnamed = {EXTRA.format(number) for number in range(len(model.pieces))}
    ids = _export_ids([piece.piece for piece in model.pieces], unnamed)
    scores = {piece.piece: piece.score for piece in model.pieces}
    named = [name for name in ids.names if name not in unnamed]
    written = library.T5Tokenizer(
        vocab=[(name, scores.get(name, 0.0)) for name in named],
        extra_ids=0,
        additional_special_tokens=[name for name in named if _SENTINEL.fullmatch(name)],
        pad_token=ids.names[ids.pad],
        _spm_precompiled_charsmap=model.normalizer_spec.precompiled_charsmap or None,
    )
    written.save_pretrained(folder)
    return ids, ids


def _export_ids(names: Sequence[str], unnamed: Collection[str]) -> ExportedIds:
    """The ids of an imported vocabulary, or those that T5 would give ours."""
    if names[PAD] == "<s>":  # MADLAD-400
        symbols = {UNKNOWN: UNK, "<s>": PAD, _END: EOS}
    else:
        symbols = {"<pad>": BOS, _END: EOS, UNKNOWN: UNK}
    # Ids without a name come after words that were added to the vocabulary.
    rest = sorted(range(4, len(names)), key=lambda number: names[number] in unnamed)
    exported = [*symbols, *(names[number] for number in rest)]
    rows = [*symbols.values(), *rest]
    if names[PAD] not in ("<s>", _NONE):
        # Our padding has the last id, which has no name in T5.
        exported.append(EXTRA.format(len(names) - 1))
        rows.append(PAD)
    return ExportedIds(
        tuple(exported),
        tuple(rows),
        pad=list(symbols).index("<s>" if names[PAD] == "<s>" else "<pad>"),
        bos=START,
        eos=list(symbols).index(_END),
        start=START,
    )
