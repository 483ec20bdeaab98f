"""Vocabularies that are not learned: files of other programs, and bytes.

A segmenter is the tokenizer of another program, with the ids of its file; `FileVocabulary` gives
them ours: PAD, UNK, BOS and EOS, then the other tokens of the file in its order. Text is normalized
as the file says, and in no other way.

Each segmenter has ``ids``, those of its tokens in order, and ``symbols``, those of pad, unk, bos
and eos, None for one that it lacks. It cuts texts, without symbols around them, joins ids, and
names a token as `Vocabulary.spell`; ``spells_words`` is whether U+2581 in a name is a space of the
text.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import sentencepiece

from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path, named
from transformer.common.packages import require_package
from transformer.data.text.word_alignment import NO_WORD
from transformer.data.tokenization.normalization import STAND_IN, WORD_START
from transformer.data.tokenization.subword_model import Subwords, with_subwords
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.vocabulary import CONTROL, Symbols, Vocabulary
from transformer.settings.tokenizer import (
    BOS,
    EOS,
    FILES,
    PAD,
    SENTINEL,
    SYMBOLS,
    UNK,
    VECTORS,
    TokenizerConfig,
)


class SentencePiece:
    """A model of SentencePiece of any kind, with any ids of its symbols."""

    spells_words = True

    def __init__(self, model: bytes, threads: int) -> None:
        if not model:
            raise ValueError("the file is empty")
        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=model, num_threads=threads
        )
        self.ids = range(self._processor.get_piece_size())
        processor = self._processor
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        self.symbols = tuple(token if token >= 0 else None for token in ids)

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(texts)

    def join(self, ids: list[int]) -> str:
        """Return the text of ids; U+2047 stands for an unknown character."""
        return str(self._processor.decode(ids))

    def name(self, token: int) -> str:
        return str(self._processor.id_to_piece(token))


_SENTINEL = re.compile(r"(<extra_id_\d{1,3}>)")


class Utf8Bytes:
    """Bytes of UTF-8 as in ByT5 (Xue et al. 2022, 3.1): pad, eos, unk, bytes, 125 sentinels.

    ``BYTES_ALONE`` has no sentinels.
    """

    CONTENT = b"the bytes of UTF-8, and 125 sentinels"
    BYTES_ALONE = b"the bytes of UTF-8"
    symbols: tuple[int | None, ...] = (0, 2, None, 1)
    spells_words = True

    def __init__(self, model: bytes = CONTENT, threads: int = 1) -> None:
        del threads
        count = 0 if model == self.BYTES_ALONE else 125
        sentinels = [SENTINEL.format(number) for number in range(count)]
        single_bytes = [bytes([byte]) for byte in range(256)]
        self._bytes = [b"", b"", b"", *single_bytes, *map(str.encode, sentinels)]
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


_SYMBOL_NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>"),
    "bos": ("<s>", "[CLS]", "<bos>", "[BOS]", "<|startoftext|>", "<|startoftranscript|>"),
    "eos": ("</s>", "[SEP]", "<eos>", "[EOS]", "<|endoftext|>"),
}
"""Usual names of the symbols: in T5 and BART, in BERT, and in others, Whisper the last."""


class HuggingFace:
    """A ``tokenizer.json``: WordPiece, unigram, BPE of characters or of bytes, or words.

    The file does not name the roles of its special tokens: pad, unk, bos and eos are found by the
    names that they usually have.
    """

    def __init__(self, model: bytes, threads: int) -> None:
        values = _parsed(model)
        self._tokenizer = _opened(values)
        self._threads = threads
        # Nothing is added around a text, and a text that spells a symbol is text.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        self.ids = sorted(set(ids.values()))
        kind = values["model"]
        unknown_names = (kind.get("unk_token"), *_SYMBOL_NAMES["unk"])
        self.symbols = tuple(
            next((ids[name] for name in names if name in ids), None)
            for names in (_SYMBOL_NAMES | {"unk": unknown_names}).values()
        )
        # How the file spells what SentencePiece writes as U+2581 before a word.
        self._added = {token["content"] for token in values.get("added_tokens") or ()}
        parts = json.dumps([values.get("pre_tokenizer"), values.get("decoder")])
        self._byte_level = '"ByteLevel"' in parts
        self._continues = kind.get("continuing_subword_prefix")
        self._ends = kind.get("end_of_word_suffix")
        self._whole = kind["type"] == "WordLevel"
        # These cut punctuation off, too.
        self.spells_words = not (self._continues or self._whole)

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        if self._threads == 1:
            encoded = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        else:
            encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def join(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def name(self, token: int) -> str:
        text = str(self._tokenizer.id_to_token(token))
        if text in self._added:
            return text.replace(" ", WORD_START)
        if self._byte_level and all(character in _BYTES for character in text):
            return spell_bytes(bytes(map(_BYTES.__getitem__, text)))
        if self._ends:
            return text.replace(self._ends, WORD_START)
        if self._continues:
            inside = text.startswith(self._continues)
            return text.removeprefix(self._continues) if inside else WORD_START + text
        return WORD_START + text if self._whole else text


def _parsed(model: bytes) -> dict[str, Any]:
    """Return the JSON with only symbols marked as special: a text may have other added tokens."""
    values = json.loads(model)
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise ValueError("it is no tokenizer.json: it has no model")
    symbols = {name for names in _SYMBOL_NAMES.values() for name in names}
    symbols.add(values["model"].get("unk_token"))
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


def with_tokens(model: bytes, words: Sequence[str]) -> bytes:
    """Add words to the tokens of a file."""
    tokenizer = _opened(_parsed(model))
    tokenizer.add_tokens(list(words))
    return str(tokenizer.to_str()).encode()


def _byte_characters() -> dict[str, int]:
    """Return the byte of each character of byte-level BPE (Radford et al. 2019, section 2.2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    characters = [*printable, *range(0x100, 0x100 + len(rest))]
    return dict(zip(map(chr, characters), [*printable, *rest], strict=True))


_BYTES = _byte_characters()


Segmenter = SentencePiece | Utf8Bytes | HuggingFace


_SEGMENTERS: dict[str, Callable[[bytes, int], Segmenter]] = {
    "sentencepiece": SentencePiece,
    "huggingface": HuggingFace,
    "bytes": Utf8Bytes,
}


class FileVocabulary(Vocabulary):
    """The tokens of a segmenter with our ids.

    ``rows`` has the id in the file for each of ours; None for a symbol that the file lacks.
    """

    def __init__(self, model: bytes, algorithm: str, tags: Tags, threads: int) -> None:
        self._arguments = (model, algorithm, tags, threads)
        self._file = _SEGMENTERS[algorithm](model, threads)
        plain = [token for token in self._file.ids if token not in self._file.symbols]
        self.rows: tuple[int | None, ...] = (*self._file.symbols, *plain)
        # A text that spells a symbol is text.
        self._our_ids = dict.fromkeys(self._file.ids, UNK)
        for our_id, token in enumerate(plain, len(CONTROL)):
            self._our_ids[token] = our_id
        self.first_tag = len(self.rows)
        self.tags = tags
        self.control = frozenset((PAD, BOS, EOS))
        self.never_written = (UNK,) if self.rows[UNK] is None else ()
        if tags.speech is not None:
            self.never_written += tags.speech.never

    def __reduce__(self) -> tuple[type["FileVocabulary"], tuple[Any, ...]]:
        return type(self), self._arguments

    def split(
        self, sentences: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[list[int]]:
        """Return the token ids of sentences; half of a surrogate pair becomes a question mark."""
        del seeds  # there is one segmentation
        texts = [text.encode("utf-8", "replace").decode("utf-8") for text in sentences]
        return [
            [self._our_ids[token] for token in tokens] if text.strip() else []
            for text, tokens in zip(texts, self._file.cut(texts), strict=True)
        ]

    def join(self, ids: list[int]) -> str:
        tokens = [self.rows[token] for token in ids]
        text = self._file.join([token for token in tokens if token is not None])
        # A text of such a model begins with the blank of its first word.
        return text.removeprefix(" ") if self.tags.speech is not None else text

    def words(self, ids: Sequence[int], text: str) -> list[int]:
        """As `Vocabulary.words`; the spelling alone would not tell.

        A file may take other characters for spaces (nmt_nfkc: U+00A0), leave a word out, or cut
        punctuation off as WordPiece does.
        """
        plain = [token for token in ids if token < self.first_tag]
        cut = self.split([word for word in text.split(" ") if word])
        if list(chain.from_iterable(cut)) == plain:
            of_plain = [number for number, row in enumerate(cut) for _ in row]
        elif self._file.spells_words and UNK not in plain:
            return super().words(ids, text)
        else:
            # No segmentation of the text, which is what these tokens become.
            joined = (self.join(plain[: end + 1]) for end in range(len(plain)))
            of_plain = [max(0, sum(map(bool, part.split(" "))) - 1) for part in joined]
            # What follows may close the space before it.
            of_plain = [*accumulate(reversed(of_plain), min)][::-1]
        numbers = iter(of_plain)
        return [next(numbers) if token < self.first_tag else NO_WORD for token in ids]

    def spell(self, token: int) -> str:
        """Return a token as SentencePiece would spell it; no two have the same spelling."""
        return self._names[token]

    @cached_property
    def _names(self) -> list[str]:
        names = dict.fromkeys(CONTROL)
        for token in self.rows[len(CONTROL) :]:
            name = self._file.name(token or 0)
            while name in names:
                name += STAND_IN
            names[name] = None
        return list(names)


def open_vocabulary(
    model: bytes, config: TokenizerConfig, side: int, tags: Tags, threads: int
) -> Vocabulary:
    """Return the vocabulary of the source (``side`` 0) or the target (1)."""
    algorithm = config.algorithms[side]
    if algorithm in VECTORS:
        from transformer.data.tokenization.vector_source import VectorSource

        return VectorSource(model)
    if algorithm in FILES:
        return FileVocabulary(model, algorithm, tags, threads)
    if algorithm in SYMBOLS:
        return Symbols(model, tags)
    return Subwords(model, algorithm, config, tags, threads)


def read_vocabulary(config: TokenizerConfig, side: int) -> bytes:
    """Return a vocabulary that is not learned, with ``config.words``; or raise InputError."""
    algorithm = config.algorithms[side]
    if algorithm == "bytes":
        return Utf8Bytes.CONTENT
    path = given_path(config.files[side] or "")
    with named(path):
        model = path.read_bytes()
    try:
        with errors_name(path):
            FileVocabulary(model, algorithm, Tags(), threads=1)
    except (RuntimeError, ValueError) as error:
        # The position in the source of SentencePiece tells a user nothing.
        reason = re.sub(r"^\w+: \S+\.cc\(\d+\) \[.*\]", "", " ".join(str(error).split()))
        detail = f" ({reason.strip()[:200]})" if reason.strip() else ""
        raise InputError(
            f"tokenizer={algorithm} cannot read {path}{detail}; "
            "give a .model of SentencePiece to tokenizer=sentencepiece, or a tokenizer.json to "
            "tokenizer=huggingface"
        ) from error
    return with_words(model, config.words, algorithm)


def with_words(model: bytes, words: Sequence[str], algorithm: str) -> bytes:
    """Return a vocabulary with these words as tokens, after its others, unless it has them."""
    # Bytes have all their sentinels already; characters and words take no words.
    if not words or algorithm == "bytes":
        return model
    if algorithm == "huggingface":
        return with_tokens(model, words)
    return with_subwords(model, words)
