"""The tokenizer of a BART, Blenderbot or ByT5 folder of transformers as ours, and back.

BART and Blenderbot have byte-level BPE: a ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``.
ByT5 has none: its tokens are bytes. Our ids are those of `FileVocabulary`. Both sides of BART begin
with ``<s>``, which is a tag here. Source: transformers 5, ``models/bart``, ``models/byt5``.
"""

from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.schema import typed_value
from transformer.data.tokenization.config import TokenizerConfig
from transformer.data.tokenization.file_vocabulary import FileVocabulary, Utf8Bytes, with_words
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer.decoding.translation.translator import Translator
from transformer.interchange.families.subwords import (
    EXTRA,
    NEVER_TRAINED,
    ExportedIds,
    ImportedIds,
    ImportedTokenizer,
)
from transformer.interchange.files import readable, write_json

JSON = "tokenizer.json"


def import_bytes(folder: Path, vocab_size: Any) -> ImportedTokenizer:
    """The bytes of ByT5, whose folder has no vocabulary."""
    return _imported(folder, vocab_size, Utf8Bytes.CONTENT, "bytes", Tags())


def import_tokenizer(folder: Path, vocab_size: Any, *, tags: Tags) -> ImportedTokenizer:
    """The tokenizer of a folder with byte-level BPE; InputError if it cannot be imported."""
    content = _content(folder)
    with readable(folder / JSON):
        size = FileVocabulary(content, "huggingface", Tags(), threads=1).first_tag
        more = range(size, typed_value(vocab_size, int, "config.json.vocab_size"))
        if len(more) <= 1000:
            content = with_words(content, list(map(EXTRA.format, more)), "huggingface")
    return _imported(folder, vocab_size, content, "huggingface", tags)


def _content(folder: Path) -> bytes:
    """``tokenizer.json``, which the older two files make."""
    if (folder / JSON).is_file() or not (folder / "vocab.json").is_file():
        with readable(folder / JSON):
            return (folder / JSON).read_bytes()
    from transformers import BartTokenizer

    with readable(folder):
        tokenizer: Any = BartTokenizer.from_pretrained(folder)
        return str(tokenizer.backend_tokenizer.to_str()).encode()


def _imported(
    folder: Path, vocab_size: Any, content: bytes, algorithm: Any, tags: Tags
) -> ImportedTokenizer:
    vocab_size = typed_value(vocab_size, int, "config.json.vocab_size")
    file = JSON if algorithm == "huggingface" else None
    config = TokenizerConfig(algorithm=algorithm, vocab_size=None, file=file)
    with readable(folder):
        tokenizer = Tokenizer(config, content, None, tags)
        rows, never = _rows(tokenizer)
    # bart-large-cnn has no vector of <mask>, the last token.
    beyond = [our for our, row in enumerate(rows) if row >= vocab_size]
    if len(beyond) > 1 or max(rows) - len(beyond) != vocab_size - 1:
        raise InputError(
            f"{folder}: config.json has vocab_size={vocab_size}, and its tokenizer {1 + max(rows)} "
            "tokens; they must be as many"
        )
    known = tuple(rows[UNK] if our in beyond else row for our, row in enumerate(rows))
    imported = ImportedIds(known, (*never, *beyond), ())
    return ImportedTokenizer(tokenizer, imported, imported)


def _rows(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """For each of our ids its id in the file, and our symbols that share the id of another.

    Raises ValueError if the file has no padding, unknown token or end.
    """
    config, tags = tokenizer.config, tokenizer.tags
    content = bytes(tokenizer.to_state()["source"].numpy())
    found = list(FileVocabulary(content, config.algorithm, Tags(), threads=1).rows)
    if None in (found[PAD], found[UNK], found[EOS]):
        raise ValueError("it has no <pad>, <unk> or </s>")
    never = [BOS] if tags.begin else [PAD] if found[BOS] is None else []
    # Padding is the start, as in T5, where there is no other symbol for it.
    found[BOS] = found[PAD] if found[BOS] is None else found[BOS]
    return [row or 0 for row in [*found, *[found[BOS]] * tags.begin]], never


def export_tokenizer(
    translator: Translator, run: dict[str, Any], folder: Path
) -> tuple[ExportedIds, ExportedIds]:
    """Write the tokenizer of BART, Blenderbot or ByT5; returns the ids of both sides, equal.

    Raises InputError for tags, or two vocabularies.
    """
    tokenizer, bias = translator.tokenizer, translator.model.projection.bias
    if not tokenizer.joint or tokenizer.tags != Tags(begin=tokenizer.tags.begin):
        raise InputError("BART and ByT5 have no two vocabularies, and no tags")
    rows, never = _rows(tokenizer)
    ours = {row: our for our, row in enumerate(rows) if our not in never}
    last = max(ours)
    if bias is not None and bias[ours[last]] < NEVER_TRAINED:
        del ours[last]
    name = "BartTokenizer" if tokenizer.tags.begin else "BlenderbotTokenizer"
    if tokenizer.config.algorithm == "bytes":
        name = "ByT5Tokenizer"
    else:
        content = tokenizer.to_state()["source"]
        (folder / JSON).write_bytes(bytes(content.numpy()))
    values = {"tokenizer_class": name, "model_max_length": run["model"]["max_length"]}
    write_json(values, folder / "tokenizer_config.json")
    numbers = tuple(ours[row] for row in range(len(ours)))
    start = rows[translator.model.config.decoder_start or BOS]
    ids = ExportedIds(
        tuple(tokenizer.subwords(numbers)), numbers, rows[PAD], rows[BOS], rows[EOS], start
    )
    return ids, ids
