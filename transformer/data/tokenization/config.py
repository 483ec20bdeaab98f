"""Settings of the vocabulary: the keys under ``tokenizer.``; defaults are in conf/tokenizer/."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the control symbols."""

Pairs = Callable[[], Iterable[tuple[str, str]]]
"""Called for each pass over aligned (source, target) text."""


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is split into subwords."""

    algorithm: Literal["unigram", "bpe"]
    """"unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016)."""
    vocab_size: Annotated[int, Range(5)]
    """Size of each vocabulary: four control symbols, 256 bytes, the alphabet, then subwords."""
    joint: bool
    """One vocabulary for both languages; otherwise one for each, of ``vocab_size`` each."""
    sampling: Annotated[float, Range(0, 1)]
    """Subword regularisation in training; 0 is off. Unigram: the smoothing alpha of Kudo 2018
    (0.1 to 0.5; smaller is wilder). BPE: the dropout probability of Provilkov et al. 2020."""
    character_coverage: Annotated[float, Range(0.98, 1)]
    """Fraction of the characters of the training text that get a subword; the rest is spelt
    in bytes."""
    max_sentences: Annotated[int, Range(1)]
    """The vocabulary is learnt from at most this many lines, drawn with a fixed seed."""
    add: Sequence[str] = ()
    """Words that are one subword each, wherever a text has them: SentencePiece's user-defined
    symbols. A run that fine-tunes adds them to the vocabulary that it begins with."""

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, "tokenizer"))
        raise_objections(
            f"tokenizer.add has {word!r}; a word to add has no spaces and is not empty"
            for word in self.add
            if word.split() != [word] or "\u2581" in word
        )
