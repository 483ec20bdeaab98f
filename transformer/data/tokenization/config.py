"""Settings of the vocabularies: the keys under ``tokenizer.``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the control symbols."""

Pairs = Callable[[], Iterable[tuple[str, str]]]
"""Called at the start of each pass over the aligned (source, target) text."""

Algorithm = Literal["unigram", "bpe", "char", "words"]
SYMBOLS: tuple[Algorithm, ...] = ("char", "words")
"""Algorithms without subwords: each token is a character, or a word, of the text."""


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is split into tokens."""

    algorithm: Algorithm = "bpe"
    """Subwords: "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016). Without subwords
    (vocabulary.py): "char", the Unicode characters, or "words", which spaces separate."""
    vocab_size: Annotated[int, Range(5)] | None = 8000
    """Size of each vocabulary of subwords: four control symbols, 256 bytes, the alphabet, then
    longer subwords. For characters and words it is the maximum size; None: no maximum."""
    joint: bool = True
    """Whether both sides share one vocabulary. If False, or if their algorithms differ, each side
    has a vocabulary of ``vocab_size``."""
    sampling: Annotated[float, Range(0, 1)] = 0.0
    """Subword regularisation in training; 0 is off. Unigram: the smoothing alpha of Kudo 2018
    (0.1 to 0.5; a smaller alpha varies more). BPE: the dropout probability of Provilkov et al.
    2020."""
    character_coverage: Annotated[float, Range(0.98, 1)] = 0.9999
    """Fraction of the characters of the training text that are in the alphabet; the others are
    encoded as bytes."""
    max_sentences: Annotated[int, Range(1)] = 2_000_000
    """Maximum number of lines from which subwords are learnt, drawn with a fixed seed. Characters
    and words are counted in all lines."""
    add: Sequence[str] = ()
    """Words that are always one subword: the user-defined symbols of SentencePiece. A fine-tuning
    run adds them to the vocabulary of the model that it starts from."""
    source: Algorithm | None = None
    """Algorithm of the source side; None: ``algorithm``."""
    target: Algorithm | None = None
    """Algorithm of the target side; None: ``algorithm``."""
    min_frequency: Annotated[int, Range(1)] = 1
    """Minimum number of occurrences in the training text; rarer characters, words and features are
    unknown."""
    decompose: bool = False
    """Whether characters are decomposed (Unicode NFD): an accent is a character, and so is each
    letter of a Hangul syllable."""
    features: str | None = None
    """Separator of the features of a source, such as ";" in ``walk TAB V;PST``. Each feature is
    one token after the characters or words of the source. None: sources have no features."""

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
            if word.split() != [word] or "\u2581" in word:  # SentencePiece's mark of a space
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
