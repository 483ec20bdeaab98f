"""The tokenizer of a BART, Blenderbot or ByT5 folder of transformers as ours, and back.

BART and Blenderbot have byte-level BPE: a ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``.
ByT5 has none: its tokens are bytes. Our ids are those of `FileVocabulary`. Both sides of BART begin
with ``<s>``, which is a tag here. Source: transformers 5, ``models/bart``, ``models/byt5``.
"""

from pathlib import Path
from typing import Any

from transformer.common.errors import InputError, readable
from transformer.common.schema import typed_value
from transformer.data.tokenization.file_vocabulary import FileVocabulary, Utf8Bytes, with_words
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translator import Translator
from transformer.interchange.architectures import subwords
from transformer.interchange.files import read_mapping, write_json
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK, TokenizerConfig

JSON = "tokenizer.json"

_CLASSES: dict[Any, str] = {
    "bart": "BartTokenizer",
    "blenderbot": "BlenderbotTokenizer",
    "bytes": "ByT5Tokenizer",
}


def import_tokenizer(
    folder: Path, vocab_size: Any, algorithm: Any = "huggingface"
) -> subwords.ImportedTokenizer:
    """The tokenizer of a folder, or "bytes"; raises InputError if it cannot be imported."""
    vocab_size = typed_value(vocab_size, int, "config.json.vocab_size")
    kind = read_mapping(folder / "config.json").get("model_type")
    tags = Tags(begin=kind == "bart")
    content = Utf8Bytes.CONTENT
    file = None
    if algorithm == "huggingface":
        content = file_content(folder, _CLASSES[kind])
        file = JSON
    config = TokenizerConfig(algorithm=algorithm, vocab_size=None, file=file)
    with readable(folder):
        size = FileVocabulary(content, algorithm, tags, threads=1).first_tag
        unnamed = list(map(subwords.EXTRA.format, range(size, min(vocab_size, size + 1000))))
        tokenizer = Tokenizer(config, with_words(content, unnamed, algorithm), None, tags)
        rows, never = _rows(tokenizer)
    # bart-large-cnn has no vector of <mask>, the last token.
    beyond = [our for our, row in enumerate(rows) if row >= vocab_size]
    if len(beyond) > 1 or max(rows) - len(beyond) != vocab_size - 1:
        raise InputError(
            f"{folder}: config.json has vocab_size={vocab_size}, and its tokenizer {1 + max(rows)} "
            "tokens; they must be as many"
        )
    within = tuple(rows[UNK] if our in beyond else row for our, row in enumerate(rows))
    imported = subwords.ImportedIds(within, (*never, *beyond), ())
    return subwords.ImportedTokenizer(tokenizer, imported, imported)


def file_content(folder: Path, name: str) -> bytes:
    """The ``tokenizer.json`` of a folder; the class of this name makes it from the older files."""
    with readable(folder / JSON):
        if (folder / JSON).is_file() or not (folder / "vocab.json").is_file():
            return (folder / JSON).read_bytes()
    import transformers

    with readable(folder):
        tokenizer: Any = getattr(transformers, name).from_pretrained(folder)
        return str(tokenizer.backend_tokenizer.to_str()).encode()


def _rows(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The id in the file for each of ours, and our ids without one; ValueError without symbols."""
    begin = tokenizer.tags.begin
    content = bytes(tokenizer.to_state()["source"].numpy())
    rows = list(FileVocabulary(content, tokenizer.config.algorithm, Tags(), threads=1).rows)
    if None in (rows[PAD], rows[UNK], rows[EOS]):
        raise ValueError("it has no <pad>, <unk> or </s>")
    never = []
    if begin:
        never = [BOS]
    elif rows[BOS] is None:
        never = [PAD]
    if rows[BOS] is None:
        # Padding is the start, as in T5, where there is no other symbol for it.
        rows[BOS] = rows[PAD]
    if begin:
        rows.append(rows[BOS])
    return [row or 0 for row in rows], never


def export_tokenizer(
    translator: Translator, run: RunConfig, folder: Path
) -> tuple[subwords.ExportedIds, subwords.ExportedIds]:
    """Write the files and return the ids; raises InputError for tags or two vocabularies."""
    tokenizer = translator.tokenizer
    begin = tokenizer.tags.begin
    algorithm = tokenizer.config.algorithm
    if not tokenizer.joint or tokenizer.tags != Tags(begin=begin):
        raise InputError("BART and ByT5 have no two vocabularies, and no tags")
    rows, never = _rows(tokenizer)
    ours = {row: our for our, row in enumerate(rows) if our not in never}
    last = max(ours)
    bias = translator.model.projection.bias
    if bias is not None and bias[ours[last]] < subwords.NEVER_TRAINED:
        del ours[last]
    if algorithm == "huggingface":
        (folder / JSON).write_bytes(bytes(tokenizer.to_state()["source"].numpy()))
    kind = "bytes" if algorithm == "bytes" else "blenderbot"
    class_name = _CLASSES["bart" if begin else kind]
    values = {"tokenizer_class": class_name, "model_max_length": run.model.max_length}
    write_json(values, folder / "tokenizer_config.json")
    numbers = tuple(ours[row] for row in range(len(ours)))
    start = rows[translator.model.config.decoder_start or BOS]
    ids = subwords.ExportedIds(
        tuple(tokenizer.subwords(numbers)), numbers, rows[PAD], rows[BOS], rows[EOS], start
    )
    return ids, ids
