"""Imports and exports the tokenizer of an M2M-100 or NLLB model of Hugging Face.

M2M-100 has a SentencePiece model and ``vocab.json``; NLLB has a ``tokenizer.json`` with the merges
of BPE. Their ids are symbols, pieces, languages, then unused ids up to ``vocab_size``. Our
tokenizer is a new SentencePiece model: our symbols, the pieces, the unused ids; the languages are
tags. An export is M2M-100 if transformers has its list of languages for M2M-100, otherwise NLLB.
Source: transformers 5, ``models/m2m_100``.
"""

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError, raise_objections, readable
from transformer.common.schema import typed_value
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.subwords import (
    EXTRA,
    ExportedIds,
    ImportedIds,
    ImportedTokenizer,
    charsmap,
    parse_subwords,
    plain_subwords,
    read_subwords,
    read_vocabulary,
    tokenizer_of,
    with_subwords,
)
from transformer.interchange.files import read_json, read_mapping, write_json
from transformer.settings.run import RunConfig

SYMBOLS = {"<pad>": 1, "<unk>": 3, "<s>": 0, "</s>": 2}
"""The symbols in our order, with their ids in M2M-100 and NLLB."""

REST = "<rest>"
"""Our name of a mark before the pieces that ``vocab.json`` lacks."""

_MOST_EXTRA = 1000
"""Maximum number of unused ids."""

_CODE = re.compile(r"__([\w-]+)__|([a-z]{3}_[A-Z][a-z]{3})")
"""A language of M2M-100, and of NLLB."""

Ids = dict[str, int]


def import_tokenizer(folder: Path, vocab_size: Any) -> ImportedTokenizer:
    """The tokenizer of a folder, and its ids; raises InputError if it cannot be imported."""
    if (folder / "vocab.json").is_file():
        subwords, ids, codes = _read_m2m(folder)
    else:
        subwords, ids, codes = _read_nllb(folder)
    return tokenizer_from(folder, vocab_size, subwords, ids, codes)


def tokenizer_from(
    folder: Path, vocab_size: Any, subwords: Any, ids: Ids, codes: Ids
) -> ImportedTokenizer:
    """Our tokenizer of these pieces; raises InputError if symbols, languages or ids are missing."""
    vocab_size = typed_value(vocab_size, int, "config.json.vocab_size")
    used = [*ids.values(), *codes.values()]
    symbols = {name: ids.pop(name, -1) for name in SYMBOLS}
    if not codes or symbols != SYMBOLS:
        raise InputError(f"{folder} lacks language codes, or <s>, <pad>, </s>, <unk> as ids 0 to 3")
    if used != list(range(len(used))) or not 0 <= vocab_size - len(used) <= _MOST_EXTRA:
        raise InputError(
            f"{folder}: pieces and languages must have the first ids, without a gap; there are "
            f"{len(used)} of them, and config.json has vocab_size={vocab_size}"
        )
    extra = range(len(used), vocab_size)
    missing = [name for name in plain_subwords(subwords) if name not in ids]
    rest = [REST, *missing] if missing else []
    names = (*SYMBOLS, *ids, *map(EXTRA.format, range(len(extra))), *rest)
    rows = [*SYMBOLS.values(), *ids.values(), *extra]
    never = range(len(rows), len(rows) + len(rest))
    # Names in ``rest`` have no id: they take the vector of <unk>.
    rows += [SYMBOLS["<unk>"]] * len(rest) + list(codes.values())
    imported = ImportedIds(tuple(rows), tuple(never), tuple(codes))
    tags = Tags(targets=imported.codes, both_sides=True)
    tokenizer = tokenizer_of(with_subwords(subwords, names), None, tags)
    return ImportedTokenizer(tokenizer, imported, imported)


def _read_m2m(folder: Path) -> tuple[Any, Ids, Ids]:
    """The pieces of M2M-100, their ids, and those of languages, which follow ``vocab.json``."""
    ids = read_vocabulary(folder / "vocab.json")
    settings = settings_of(folder)
    special = settings.get("extra_special_tokens", settings.get("additional_special_tokens", []))
    codes: Ids = {}
    for name in typed_value(special, list, "special tokens"):
        match = _CODE.fullmatch(str(name))
        if match:
            codes[match[1]] = len(ids) + len(codes)
    return read_subwords(folder / "sentencepiece.bpe.model"), ids, codes


def _read_nllb(folder: Path) -> tuple[Any, Ids, Ids]:
    """The same of NLLB, from the ``tokenizer.json`` of the library ``tokenizers``."""
    if settings_of(folder).get("legacy_behaviour"):
        raise InputError(f"{folder}: only a tokenizer with legacy_behaviour=false can be imported")
    file = folder / "tokenizer.json"
    values = read_json(file)
    with readable(file):
        model = values["model"]
        added = {str(token["content"]): int(token["id"]) for token in values["added_tokens"]}
        unsorted = {str(name): int(number) for name, number in model["vocab"].items()} | added
        ids = dict(sorted(unsorted.items(), key=lambda entry: entry[1]))
        merges = [
            tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]
        ]
        pieces = [name for name in ids if name not in added]
        subwords = _sentencepiece(pieces, merges, charsmap(values))
    codes = {name: ids[name] for name in ids if name in added and _CODE.fullmatch(name)}
    special = added.keys() - SYMBOLS.keys()
    return subwords, {name: ids[name] for name in ids if name not in special}, codes


def settings_of(folder: Path) -> dict[str, Any]:
    """The settings of a tokenizer from two files, which may be missing; the second one wins."""
    special = read_mapping(folder / "special_tokens_map.json", optional=True)
    config = read_mapping(folder / "tokenizer_config.json", optional=True)
    return special | config


def _sentencepiece(names: list[str], merges: list[tuple[str, ...]], replaced: bytes) -> Any:
    """A SentencePiece model of the kind BPE; raises ValueError if it would merge differently.

    BPE ranks pairs of pieces, SentencePiece the piece that a pair becomes. The two agree if merges
    into the same piece stand together, and each pair of pieces that makes a piece is a merge.
    """
    ranked = [name for name, _ in groupby(first + second for first, second in merges)]
    known = set(names)
    merged = set(merges)
    agrees = len(set(ranked)) == len(ranked) and all(
        (name[:cut], name[cut:]) in merged
        for name in names
        for cut in range(1, len(name))
        if name[:cut] in known and name[cut:] in known
    )
    if not agrees:
        raise ValueError("its merges are not those of SentencePiece")
    scores = {name: -float(index) for index, name in enumerate(ranked)}
    model = parse_subwords(b"")
    for name in names:
        score = scores.get(name, -float(len(ranked)))
        model.pieces.add(piece=name, score=score, type=model.SentencePiece.NORMAL)
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.normalizer_spec.precompiled_charsmap = replaced
    model.normalizer_spec.remove_extra_whitespaces = bool(replaced)
    return model


def export_tokenizer(
    translator: Translator, run: RunConfig, folder: Path
) -> tuple[ExportedIds, ExportedIds]:
    """Write M2M-100's or NLLB's files and return the ids; raises InputError if neither fits."""
    import transformers
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    library: Any = transformers
    tokenizer = translator.tokenizer
    ids = export_ids(tokenizer, "M2M-100")
    codes = list(tokenizer.tags.targets)
    # The exported id of the first language: tags are the first ids that no translation has.
    first = ids.rows.index(tokenizer.never_written[0])
    vocabulary = {name: number for number, name in enumerate(ids.names[:first])}
    model = bytes(tokenizer.to_state()["source"].numpy())
    known = [name for name, listed in FAIRSEQ_LANGUAGE_CODES.items() if listed == codes]
    if known:
        vocabulary_file = folder / "vocab.json"
        model_file = folder / "sentencepiece.bpe.model"
        write_json(vocabulary, vocabulary_file)
        model_file.write_bytes(model)
        written = library.M2M100Tokenizer(
            str(vocabulary_file),
            str(model_file),
            language_codes=known[0],
            additional_special_tokens=[f"__{code}__" for code in codes],
            **languages(run),
        )
    elif tokenizer.config.algorithm == "bpe":
        subwords = parse_subwords(model)
        written = library.NllbTokenizer(
            vocab=vocabulary | {name: first + i for i, name in enumerate([*codes, "<mask>"])},
            merges=_merges(vocabulary, {piece.piece: piece.score for piece in subwords.pieces}),
            extra_special_tokens=codes,
            _spm_precompiled_charsmap=subwords.normalizer_spec.precompiled_charsmap or None,
            **languages(run),
        )
    else:
        raise InputError("NLLB has tokenizer.algorithm=bpe, not unigram")
    written.save_pretrained(folder)
    return ids, ids


def languages(run: RunConfig) -> dict[str, str]:
    """The languages of a run, as its tokenizer_config.json has them."""
    return {"src_lang": run.data.source, "tgt_lang": run.data.target}


def export_ids(tokenizer: Tokenizer, architecture: str) -> ExportedIds:
    """Symbols, pieces, languages and unused ids; raises InputError for what the model lacks."""
    tags = tokenizer.tags
    names = tokenizer.subwords(range(tokenizer.target_vocab_size))
    one_tag = tags.both_sides and tokenizer.joint and not (tags.corpora or tags.sentences)
    lacking = {
        "other tags than data.target_tag=both, or two vocabularies": not one_tag,
        "pieces of single bytes": "<0x00>" in names,
    }
    # Our ids: symbols, pieces up to ``end``, unused ids (``extra``) and REST, languages.
    first_language = len(names) - len(tags.targets)
    after = EXTRA.format(0), REST
    end = next((i for i in range(4, first_language) if names[i] in after), first_language)
    lacking["words of tokenizer.add"] = not {*tokenizer.config.add}.isdisjoint(names[end:])
    raise_objections(f"{architecture} has no {name}" for name, used in lacking.items() if used)
    extra = [i for i in range(end, first_language) if names[i] == EXTRA.format(i - end)]
    symbols = sorted(SYMBOLS, key=SYMBOLS.__getitem__)
    rows = [list(SYMBOLS).index(name) for name in symbols]
    rows += [*range(4, end), *range(first_language, len(names)), *extra]
    exported = (*symbols, *names[4:end], *tags.targets, *(names[i] for i in extra))
    pad, bos, eos = (SYMBOLS[name] for name in ("<pad>", "<s>", "</s>"))
    return ExportedIds(exported, tuple(rows), pad, bos, eos, start=eos)


def _merges(vocabulary: Ids, scores: dict[str, float]) -> list[tuple[str, str]]:
    """The pairs that BPE merges, in the order of the scores of their results."""
    return [
        (name[:cut], name[cut:])
        for name in sorted(vocabulary, key=lambda name: -scores[name])
        for cut in range(1, len(name))
        if name not in SYMBOLS and name[:cut] in vocabulary and name[cut:] in vocabulary
    ]
