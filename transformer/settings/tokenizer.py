"""Settings of the vocabularies: the keys under ``tokenizer.``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings

PAD, UNK, BOS, EOS = 0, 1, 2, 3

Algorithm = Literal[
    "unigram",
    "bpe",
    "char",
    "words",
    "sentencepiece",
    "huggingface",
    "bytes",
    "speech",
    "image",
    "vectors",
]
SYMBOLS: tuple[Algorithm, ...] = ("char", "words")
"""Algorithms without subwords: each token is a character, or a word, of the text."""
FILES: tuple[Algorithm, ...] = ("sentencepiece", "huggingface", "bytes")
"""Vocabularies that are not learned (file_vocabulary.py)."""
VECTORS: tuple[Algorithm, ...] = ("speech", "image", "vectors")
"""Sources that are no text: files that become sequences of vectors (vector_source.py)."""

SENTINEL = "<extra_id_{}>"
"""The sentinels of T5 (Raffel et al. 2020, section 3.1.4), as transformers spells them."""


@dataclass(frozen=True)
class TokenizerConfig(Settings, group="tokenizer"):
    """How text is split into tokens; ``conf/tokenizer/bpe.yaml`` has a line about each key."""

    algorithm: Algorithm = "bpe"
    """Subwords: "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016). Without subwords
    (vocabulary.py): "char", the Unicode characters, or "words", which spaces separate. Not learned:
    "sentencepiece" and "huggingface", the vocabulary of a ``file``, or "bytes", with the ids of
    ByT5 (Xue et al. 2022). ``data.source_kind`` sets "speech", "image" and "vectors"."""
    vocab_size: Annotated[int, Range(5)] | None = 8000
    """Size of each vocabulary of subwords: four control symbols, 256 bytes, the alphabet, then
    longer subwords. For characters and words it is the maximum size; None: no maximum."""
    joint: bool = True
    sampling: Annotated[float, Range(0, 1)] = 0.0
    """Subword regularization in training; 0 is off. Unigram: the smoothing alpha of Kudo 2018
    (0.1 to 0.5; a smaller alpha varies more). BPE: the dropout probability of Provilkov et al.
    2020."""
    character_coverage: Annotated[float, Range(0.98, 1)] = 0.9999
    max_sentences: Annotated[int, Range(1)] = 2_000_000
    add: Sequence[str] = ()
    source: Algorithm | None = None
    target: Algorithm | None = None
    min_frequency: Annotated[int, Range(1)] = 1
    decompose: bool = False
    features: str | None = None
    file: str | Sequence[str] | None = None
    sentinels: Annotated[int, Range(0, 1000)] = 0

    def _objections(self) -> Iterator[str]:
        learned = {*self.algorithms} - {*SYMBOLS, *FILES, *VECTORS}
        if self.vocab_size is None and learned:
            yield f"tokenizer.vocab_size=null: a vocabulary of {min(learned)} needs a size"
        if self.sampling and not learned:
            yield "tokenizer.sampling draws subwords of unigram and bpe; set it to 0"
        for word in self.add:
            if word.split() != [word] or "\u2581" in word:  # SentencePiece's mark of a space
                yield f"tokenizer.add has {word!r}; a word to add has no spaces and is not empty"
        if self.words and {*self.algorithms} & {*SYMBOLS}:
            yield (
                "tokenizer.add and sentinels are for subwords: char and words take all tokens of "
                "the text"
            )
        if "bytes" in self.algorithms and (self.add or self.sentinels > 125):
            yield "tokenizer=bytes has 125 sentinels, and takes no words of tokenizer.add"
        yield from self._file_objections()
        if self.decompose and "char" not in self.algorithms:
            yield "tokenizer.decompose is for characters; set tokenizer.source or target to char"
        if self.features is not None and self.algorithms[0] not in SYMBOLS:
            yield "tokenizer.features are read with tokenizer.source=char or words; set one of them"
        if self.features == "":
            yield "tokenizer.features='' separates nothing; set it to ';', or null"

    def _file_objections(self) -> Iterator[str]:
        read = {*self.algorithms} & {"sentencepiece", "huggingface"}
        if read and not all(self.files):
            yield f"tokenizer={min(read)} reads a vocabulary; set tokenizer.file=PATH"
        elif self.file is not None and not read:
            yield (
                f"tokenizer.file is not read with tokenizer={self.algorithm}; leave it out, or set "
                "tokenizer=sentencepiece or huggingface"
            )
        if self.algorithms[1] in VECTORS:
            yield f"tokenizer.target={self.algorithms[1]}: only a source can be files"
        if len(self.files) != 2:
            yield "tokenizer.file must be one file, or [SOURCE,TARGET]"

    @property
    def files(self) -> tuple[str | None, ...]:
        if self.file is None or isinstance(self.file, str):
            return self.file, self.file
        return tuple(self.file)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.add, *map(SENTINEL.format, range(self.sentinels)))

    @property
    def algorithms(self) -> tuple[Algorithm, Algorithm]:
        return self.source or self.algorithm, self.target or self.algorithm

    @property
    def one_vocabulary(self) -> bool:
        same = self.algorithms[0] == self.algorithms[1] and self.files[0] == self.files[1]
        return self.joint and same
