"""Settings of the vocabularies: the keys under ``tokenizer.``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the control symbols."""

Pairs = Callable[[], Iterable[tuple[str, str]]]
"""Called for each pass over aligned (source, target) text."""

Algorithm = Literal["unigram", "bpe", "char", "words"]
SYMBOLS: tuple[Algorithm, ...] = ("char", "words")
"""The algorithms whose tokens are given by the text."""


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is split into tokens."""

    algorithm: Algorithm = "bpe"
    """Subwords by "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016); "char" takes Unicode
    characters, "words" takes words between blanks (vocabulary.py)."""
    vocab_size: Annotated[int, Range(5)] | None = 8000
    """Size of each vocabulary: four control symbols, 256 bytes, the alphabet, then subwords. The
    largest size for characters and words; None: all of them."""
    joint: bool = True
    """One vocabulary for both sides, if they have the same algorithm; otherwise one per side, of
    ``vocab_size`` each."""
    sampling: Annotated[float, Range(0, 1)] = 0.0
    """Subword regularisation in training; 0 is off. Unigram: the smoothing alpha of Kudo 2018
    (0.1 to 0.5; smaller is wilder). BPE: the dropout probability of Provilkov et al. 2020."""
    character_coverage: Annotated[float, Range(0.98, 1)] = 0.9999
    """Fraction of the characters of the training text that get a subword; the rest is spelt
    in bytes."""
    max_sentences: Annotated[int, Range(1)] = 2_000_000
    """The vocabulary is learnt from at most this many lines, drawn with a fixed seed;
    characters and words are counted in all lines."""
    add: Sequence[str] = ()
    """Words that are always one subword: SentencePiece's user-defined symbols. A fine-tuning run
    adds them to its initial vocabulary."""
    source: Algorithm | None = None
    """Algorithm of the source side; None: ``algorithm``."""
    target: Algorithm | None = None
    """Algorithm of the target side; None: ``algorithm``."""
    min_frequency: Annotated[int, Range(1)] = 1
    """Characters, words and features that are rarer in the training text are unknown."""
    decompose: bool = False
    """Split characters by NFD: an accent is a character, and each letter of a Hangul syllable."""
    features: str | None = None
    """Separator of the features of a source, such as ";" in ``walk TAB V;PST``: each is one token,
    after the characters or words of the source. None: there are none."""

    def __post_init__(self) -> None:
        raise_objections(self._objections())

    def _objections(self) -> Iterator[str]:
        yield from out_of_range(self, "tokenizer")
        subwords = {*self.algorithms} - {*SYMBOLS}
        if self.vocab_size is None and subwords:
            yield f"tokenizer.vocab_size=null: a vocabulary of {min(subwords)} needs a size"
        if self.sampling and not subwords:
            yield "tokenizer.sampling draws subwords, which char and words do not have; set it to 0"
        for word in self.add:
            if word.split() != [word] or "\u2581" in word:
                yield f"tokenizer.add has {word!r}; a word to add has no spaces and is not empty"
        if self.add and len(subwords) < len({*self.algorithms}):
            yield "tokenizer.add is for subwords: char and words take all tokens of the text"
        if self.decompose and "char" not in self.algorithms:
            yield "tokenizer.decompose is for characters; set tokenizer.source or target to char"
        if self.features is not None and self.algorithms[0] not in SYMBOLS:
            yield "tokenizer.features are read with tokenizer.source=char or words; set one of them"
        if self.features == "":
            yield "tokenizer.features='' separates nothing; set it to ';', or null"

    @property
    def algorithms(self) -> tuple[Algorithm, Algorithm]:
        """Algorithms of source and target."""
        return self.source or self.algorithm, self.target or self.algorithm

    @property
    def one_vocabulary(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.joint and self.algorithms[0] == self.algorithms[1]
