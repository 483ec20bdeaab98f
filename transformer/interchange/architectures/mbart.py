"""The tokenizer of mBART-50 (transformers 5) as ours, and back; ids are as in ``m2m.py``."""

from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.decoding.translator import Translator
from transformer.interchange.architectures import m2m
from transformer.interchange.architectures.subwords import (
    EXTRA,
    ExportedIds,
    ImportedTokenizer,
    parse_subwords,
    read_subwords,
    read_unigram,
)
from transformer.settings.run import RunConfig

MASK = "<mask>"
"""The first id after the languages."""


def import_tokenizer(folder: Path, vocab_size: Any) -> ImportedTokenizer:
    """The tokenizer of a folder of mBART-50; raises InputError if it cannot be imported."""
    name = m2m.settings_of(folder).get("tokenizer_class")
    if str(name).removesuffix("Fast") != "MBart50Tokenizer":
        raise InputError(
            f"{folder}: tokenizer_class={str(name)[:40]} cannot be imported, only mBART-50's, "
            "MBart50Tokenizer: source and target begin with their languages"
        )
    subwords, ids, codes = _read(folder)
    return m2m.tokenizer_from(folder, vocab_size, subwords, ids, codes)


def _read(folder: Path) -> tuple[Any, m2m.Ids, m2m.Ids]:
    """Pieces, their ids, and those of the languages; pieces of a ``.model`` have ids from 4 on."""
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

    symbols = sorted(m2m.SYMBOLS, key=m2m.SYMBOLS.__getitem__)
    file = folder / "sentencepiece.bpe.model"
    if file.is_file():
        subwords = read_subwords(file)
        pieces = [piece.piece for piece in subwords.pieces[3:]]
        names = [*symbols, *pieces, *FAIRSEQ_LANGUAGE_CODES]
    else:
        subwords = read_unigram(folder / "tokenizer.json")
        names = [piece.piece for piece in subwords.pieces if piece.piece != MASK]
    for piece in subwords.pieces:
        if piece.piece in (*m2m.SYMBOLS, *FAIRSEQ_LANGUAGE_CODES, MASK):
            piece.type = piece.CONTROL
    ids = {name: number for number, name in enumerate(names)}
    codes = {name: ids.pop(name) for name in FAIRSEQ_LANGUAGE_CODES if name in ids}
    return subwords, ids, codes


def export_tokenizer(
    translator: Translator, run: RunConfig, folder: Path
) -> tuple[ExportedIds, ExportedIds]:
    """Write the files and return the ids; raises InputError for other languages than its own."""
    import transformers
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

    library: Any = transformers
    tokenizer = translator.tokenizer
    ids = m2m.export_ids(tokenizer, "mBART-50")
    if list(tokenizer.tags.targets) != FAIRSEQ_LANGUAGE_CODES:
        raise InputError("mBART-50 has no other languages than its 52")
    model = parse_subwords(bytes(tokenizer.to_state()["source"].numpy()))
    scores = {piece.piece: piece.score for piece in model.pieces}
    names = [MASK if name == EXTRA.format(0) else name for name in ids.names]
    written = library.MBart50Tokenizer(
        vocab=[(name, scores.get(name, 0.0)) for name in names],
        _spm_precompiled_charsmap=model.normalizer_spec.precompiled_charsmap or None,
        **m2m.languages(run),
    )
    written.save_pretrained(folder)
    return ids, ids
