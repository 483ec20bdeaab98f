"""An M2M-100 or NLLB model for transformers: the vocabulary with its files.

It is M2M-100 if the languages are one of the sets that its tokenizer knows, else NLLB.
"""

import json
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.m2m.vocabulary import EXTRA, REST, SYMBOLS
from transformer.interchange.marian.vocabulary import ExportedIds, parse_subwords
from transformer.interchange.marian.weights import NEVER
from transformer.model.transformer import Transformer


def export_ids(model: Transformer, tokenizer: Tokenizer) -> ExportedIds:
    """The ids of a model there: symbols, pieces, languages, and what came after them.

    Raises:
        InputError: It has no such vocabulary, or what M2M-100 lacks.
    """
    tags = tokenizer.tags
    names = tokenizer.subwords(range(tokenizer.target_vocab_size))
    if not (tags.both_sides and tokenizer.joint) or tags.corpora or tags.sentences:
        raise InputError("M2M-100 has one vocabulary with data.target_tag=both, and no more tags")
    if "<0x00>" in names:
        raise InputError("the tokenizers of M2M-100 and NLLB have no pieces of single bytes")
    bias = model.projection.bias
    if bias is not None and not bool(((bias == 0) | (bias == NEVER)).all()):
        raise InputError("M2M-100 has no output bias, and this model has learnt one")
    first = len(names) - len(tags.targets)
    after = EXTRA.format(0), REST
    end = next((index for index in range(4, first) if names[index] in after), first)
    extra = [index for index in range(end, first) if names[index] == EXTRA.format(index - end)]
    symbols = sorted(SYMBOLS, key=lambda name: SYMBOLS[name])
    rows = [list(SYMBOLS).index(name) for name in symbols]
    rows += [*range(4, end), *range(first, len(names)), *extra]
    spelt = (*symbols, *names[4:end], *tags.targets, *(names[index] for index in extra))
    return ExportedIds(spelt, tuple(rows), SYMBOLS["</s>"], SYMBOLS["</s>"])


def write_tokenizer(
    tokenizer: Tokenizer, ids: ExportedIds, own: dict[str, Any], folder: Path
) -> None:
    """Write the files of the tokenizer of transformers; ``own`` are more of its settings."""
    import transformers
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    library: Any = transformers
    codes = list(tokenizer.tags.targets)
    first = ids.rows.index(tokenizer.never_written[0])
    vocabulary = {name: number for number, name in enumerate(ids.names[:first])}
    model = bytes(tokenizer.to_state()["source"].numpy())
    for name, known in FAIRSEQ_LANGUAGE_CODES.items():
        if codes == known:
            files = folder / "vocab.json", folder / "sentencepiece.bpe.model"
            files[0].write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
            files[1].write_bytes(model)
            special = [f"__{code}__" for code in codes]
            library.M2M100Tokenizer(
                *map(str, files), language_codes=name, additional_special_tokens=special, **own
            ).save_pretrained(folder)
            return
    if tokenizer.config.algorithm != "bpe":
        raise InputError("NLLB has tokenizer.algorithm=bpe, not unigram")
    subwords = parse_subwords(model)
    scores = {one.piece: one.score for one in subwords.pieces}
    merges = [
        (name[:cut], name[cut:])
        for name in sorted(vocabulary, key=lambda name: -scores[name])
        for cut in range(1, len(name))
        if name not in SYMBOLS and name[:cut] in vocabulary and name[cut:] in vocabulary
    ]
    library.NllbTokenizer(
        vocab=vocabulary | {name: first + i for i, name in enumerate([*codes, "<mask>"])},
        merges=merges,
        extra_special_tokens=codes,
        _spm_precompiled_charsmap=subwords.normalizer_spec.precompiled_charsmap or None,
        **own,
    ).save_pretrained(folder)
