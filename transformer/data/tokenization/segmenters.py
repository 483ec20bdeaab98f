"""Tokenizers of other programs: SentencePiece, Hugging Face's ``tokenizers``, and bytes.

They have the ids of their files; file_vocabulary.py gives them ours. Each has ``ids``, those of its
tokens in order, and ``symbols``, those of pad, unk, bos and eos, None for one that it lacks. Each
cuts texts, without symbols around them, joins ids, and names a token as `Vocabulary.spell`.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import sentencepiece

from transformer.common.errors import require_package
from transformer.data.tokenization.normalization import WORD_START
from transformer.settings.tokenizer import SENTINEL


class SentencePiece:
    """A model of SentencePiece of any kind, with any ids of its symbols."""

    def __init__(self, model: bytes, threads: int) -> None:
        if not model:
            raise ValueError("the file is empty")
        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=model, num_threads=threads
        )
        self.ids = range(self._processor.get_piece_size())
        kinds = ("pad", "unk", "bos", "eos")
        found = [int(getattr(self._processor, f"{kind}_id")()) for kind in kinds]
        self.symbols = tuple(token if token >= 0 else None for token in found)

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(texts)

    def join(self, ids: list[int]) -> str:
        """Return the text of ids; U+2047 stands for an unknown character."""
        return str(self._processor.decode(ids))

    def name(self, token: int) -> str:
        return str(self._processor.id_to_piece(token))


_SENTINEL = re.compile(r"(<extra_id_\d{1,3}>)")


class Utf8Bytes:
    """Bytes of UTF-8 as in ByT5 (Xue et al. 2022, 3.1): pad, eos, unk, bytes, 125 sentinels."""

    CONTENT = b"the bytes of UTF-8, and 125 sentinels"
    symbols: tuple[int | None, ...] = (0, 2, None, 1)

    def __init__(self, model: bytes = CONTENT, threads: int = 1) -> None:
        del model, threads  # there is one vocabulary
        sentinels = [SENTINEL.format(number) for number in range(125)]
        bytes_ = (bytes([byte]) for byte in range(256))
        self._bytes = [b"", b"", b"", *bytes_, *map(str.encode, sentinels)]
        self._sentinels = {name: 3 + 256 + number for number, name in enumerate(sentinels)}
        self.ids = range(len(self._bytes))

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts; a sentinel is one token."""
        return [
            [token for part in _SENTINEL.split(text) for token in self._part(part)]
            for text in texts
        ]

    def _part(self, text: str) -> list[int]:
        sentinel = self._sentinels.get(text)
        return [byte + 3 for byte in text.encode()] if sentinel is None else [sentinel]

    def join(self, ids: list[int]) -> str:
        """Return the text of ids; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self._bytes[token] for token in ids).decode("utf-8", "replace")

    def name(self, token: int) -> str:
        """Return a sentinel, a character, or the number of a byte."""
        return spell_bytes(self._bytes[token])


def spell_bytes(content: bytes) -> str:
    """Spell the bytes of a token: printable text, or ``<0xE2><0x82>``; U+2581 is a space."""
    text = content.decode("utf-8", "replace")
    if text.isprintable() and "\ufffd" not in text and "\u2581" not in text:
        return text.replace(" ", "\u2581")
    space = content.startswith(b" ")
    return "\u2581" * space + "".join(f"<0x{byte:02X}>" for byte in content[space:])


_NAMES = (
    ("<pad>", "[PAD]", "<|pad|>"),
    ("<unk>", "[UNK]", "<|unk|>"),
    ("<s>", "[CLS]", "<bos>", "[BOS]", "<|startoftext|>"),
    ("</s>", "[SEP]", "<eos>", "[EOS]", "<|endoftext|>"),
)
"""Usual names of pad, unk, bos and eos: in T5 and BART, in BERT, and in others."""


class HuggingFace:
    """A ``tokenizer.json``: WordPiece, unigram, BPE of characters or of bytes, or words.

    The file does not name the roles of its special tokens: pad, unk, bos and eos are found by the
    names that they usually have.
    """

    def __init__(self, model: bytes, threads: int) -> None:
        values, self._threads = _parsed(model), threads
        self._tokenizer = _opened(values)
        # Nothing is added around a text, and a text that spells a symbol is text.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        self.ids = sorted(set(ids.values()))
        unknown = values["model"].get("unk_token")
        names = (_NAMES[0], (unknown, *_NAMES[1]), *_NAMES[2:])
        self.symbols = tuple(next((ids[one] for one in n if one in ids), None) for n in names)
        # What tokens of this file have in place of SentencePiece's spelling.
        kind, parts = values["model"], [values.get("pre_tokenizer"), values.get("decoder")]
        self._added = {token["content"] for token in values.get("added_tokens") or ()}
        self._byte_level = '"ByteLevel"' in json.dumps(parts)
        self._continues = kind.get("continuing_subword_prefix")
        self._ends = kind.get("end_of_word_suffix")
        self._whole = kind["type"] == "WordLevel"

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        if self._threads == 1:
            encoded = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        else:
            encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [one.ids for one in encoded]

    def join(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def name(self, token: int) -> str:
        text = str(self._tokenizer.id_to_token(token))
        if text in self._added:
            return text
        if self._byte_level and all(character in _BYTES for character in text):
            return spell_bytes(bytes(map(_BYTES.__getitem__, text)))
        if self._ends:
            return text.replace(self._ends, WORD_START)
        if self._continues:
            inside = text.startswith(self._continues)
            return text.removeprefix(self._continues) if inside else WORD_START + text
        return WORD_START + text if self._whole else text


def _byte_characters() -> dict[str, int]:
    """The byte of each character of byte-level BPE (Radford et al. 2019, section 2.2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    characters = [*printable, *range(0x100, 0x100 + len(rest))]
    return dict(zip(map(chr, characters), [*printable, *rest], strict=True))


_BYTES = _byte_characters()


def _parsed(model: bytes) -> dict[str, Any]:
    """The JSON, in which only symbols are special: a text may have the other added tokens."""
    values = json.loads(model)
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise ValueError("it is no tokenizer.json: it has no model")
    symbols = {name for names in _NAMES for name in names} | {values["model"].get("unk_token")}
    for token in values.get("added_tokens") or ():
        token["special"] = token["content"] in symbols
    # Files of the first versions of the package do not name the kind.
    values["model"].setdefault("type", "BPE")
    return values


def _opened(values: dict[str, Any]) -> Any:
    require_package("tokenizers", "tokenizer=huggingface", "tokenizers")
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(json.dumps(values))
    except Exception as error:  # the package raises Exception itself
        raise ValueError(str(error)) from error


Segmenter = SentencePiece | Utf8Bytes | HuggingFace


def with_tokens(model: bytes, words: Sequence[str]) -> bytes:
    """Add words to the tokens of a file."""
    tokenizer = _opened(_parsed(model))
    tokenizer.add_tokens(list(words))
    return str(tokenizer.to_str()).encode()
