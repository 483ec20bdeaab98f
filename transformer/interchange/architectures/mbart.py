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
    return m2m.tokenizer_from(folder, vocab_size, *_read(folder))


def _read(folder: Path) -> tuple[Any, m2m.Ids, m2m.Ids]:
    """Pieces, their ids, and those of the languages; pieces of a ``.model`` have ids from 4 on."""
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

    symbols = sorted(m2m.SYMBOLS, key=m2m.SYMBOLS.__getitem__)
    if (file := folder / "sentencepiece.bpe.model").is_file():
        subwords = read_subwords(file)
        names = [*symbols, *(one.piece for one in subwords.pieces[3:]), *FAIRSEQ_LANGUAGE_CODES]
    else:
        subwords = read_unigram(folder / "tokenizer.json")
        names = [one.piece for one in subwords.pieces if one.piece != MASK]
    for one in subwords.pieces:
        if one.piece in (*m2m.SYMBOLS, *FAIRSEQ_LANGUAGE_CODES, MASK):
            one.type = one.CONTROL
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
    own = parse_subwords(bytes(tokenizer.to_state()["source"].numpy()))
    scores = {one.piece: one.score for one in own.pieces}
    names = [MASK if name == EXTRA.format(0) else name for name in ids.names]
    written = library.MBart50Tokenizer(
        vocab=[(name, scores.get(name, 0.0)) for name in names],
        _spm_precompiled_charsmap=own.normalizer_spec.precompiled_charsmap or None,
        **m2m.languages(run),
    )
    written.save_pretrained(folder)
    return ids, ids
