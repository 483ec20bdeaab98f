"""Vocabularies that are not learned: files of other programs, and bytes.

Our ids are those of PAD, UNK, BOS and EOS, then the other tokens of the file in its order. Text is
normalized as the file says, and in no other way.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path, named
from transformer.data.tokenization import segmenters
from transformer.data.tokenization.normalization import STAND_IN
from transformer.data.tokenization.subword_model import Subwords, with_subwords
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.vocabulary import CONTROL, Symbols, Vocabulary
from transformer.settings.tokenizer import BOS, EOS, FILES, PAD, SYMBOLS, UNK, TokenizerConfig

_SEGMENTERS: dict[str, Callable[[bytes, int], segmenters.Segmenter]] = {
    "sentencepiece": segmenters.SentencePiece,
    "huggingface": segmenters.HuggingFace,
    "bytes": segmenters.Utf8Bytes,
}


class FileVocabulary(Vocabulary):
    """Gives our ids to the tokens of a segmenter; ``rows`` has those of the file, None for none."""

    def __init__(self, model: bytes, algorithm: str, tags: Tags, threads: int) -> None:
        self._arguments = (model, algorithm, tags, threads)
        self._file = _SEGMENTERS[algorithm](model, threads)
        plain = [token for token in self._file.ids if token not in self._file.symbols]
        self.rows: tuple[int | None, ...] = (*self._file.symbols, *plain)
        # A text that spells a symbol is text.
        self._ours = dict.fromkeys(self._file.ids, UNK)
        self._ours |= {token: our for our, token in enumerate(plain, len(CONTROL))}
        self.first_tag, self.tags = len(self.rows), tags
        self.control = frozenset((PAD, BOS, EOS))
        self.never_written = (UNK,) if self.rows[UNK] is None else ()

    def __reduce__(self) -> tuple[type["FileVocabulary"], tuple[Any, ...]]:
        return type(self), self._arguments

    def split(
        self, sentences: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[list[int]]:
        """Return the token ids of sentences; half of a surrogate pair becomes a question mark."""
        del seeds  # there is one segmentation
        texts = [text.encode("utf-8", "replace").decode("utf-8") for text in sentences]
        rows = zip(texts, self._file.cut(texts), strict=True)
        return [[self._ours[token] for token in row] if text.strip() else [] for text, row in rows]

    def join(self, ids: list[int]) -> str:
        return self._file.join([row for token in ids if (row := self.rows[token]) is not None])

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
    if algorithm in FILES:
        return FileVocabulary(model, algorithm, tags, threads)
    if algorithm in SYMBOLS:
        return Symbols(model, tags)
    return Subwords(model, replace(config, algorithm=algorithm), tags, threads)


def read_vocabulary(config: TokenizerConfig, side: int) -> bytes:
    """Return a vocabulary that is not learned, with ``config.words``; or raise InputError."""
    algorithm = config.algorithms[side]
    if algorithm == "bytes":
        return segmenters.Utf8Bytes.CONTENT
    path = given_path(config.files[side] or "")
    with named(path):
        model = path.read_bytes()
    try:
        with errors_name(path):
            FileVocabulary(model, algorithm, Tags(), threads=1)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"{path} is no file for tokenizer={algorithm} ({' '.join(str(error).split())[:200]}); "
            "give a .model of SentencePiece to tokenizer=sentencepiece, or a tokenizer.json to "
            "tokenizer=huggingface"
        ) from error
    return with_words(model, config.words, algorithm)


def with_words(model: bytes, words: Sequence[str], algorithm: str) -> bytes:
    """Return a vocabulary with these words as tokens, after its others, unless it has them."""
    # Bytes have all their sentinels already; characters and words take no words.
    if not words or algorithm == "bytes":
        return model
    return (segmenters.with_tokens if algorithm == "huggingface" else with_subwords)(model, words)
