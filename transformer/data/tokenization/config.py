"""How text is cut into subwords: the keys under ``tokenizer.``."""

from dataclasses import dataclass

from transformer.common.errors import InputError


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is cut into pieces; the defaults stand in conf/tokenizer/."""

    algorithm: str
    """"unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016)."""
    vocab_size: int
    """Pieces of each vocabulary: four control symbols, 256 bytes, the alphabet, then subwords."""
    joint: bool
    """One vocabulary for both languages; otherwise one for each, of ``vocab_size`` each."""
    sampling: float
    """Subword regularisation in training; 0 is off. Unigram: the smoothing alpha of Kudo 2018
    (0.1 to 0.5; smaller is wilder). BPE: the dropout probability of Provilkov et al. 2020."""
    character_coverage: float
    """Share of the characters of the training text that get a piece; the rest is spelt in bytes."""
    max_sentences: int
    """The vocabulary is learnt from at most so many lines, drawn at random with a fixed seed."""

    def __post_init__(self) -> None:
        """Refuse what is out of range.

        Raises:
            InputError: something is.
        """
        for name in ("vocab_size", "max_sentences"):
            if getattr(self, name) < 1:
                raise InputError(f"tokenizer.{name}={getattr(self, name)} must be at least 1")
        # SentencePiece takes no other.
        if not 0.98 <= self.character_coverage <= 1:
            raise InputError(
                f"tokenizer.character_coverage={self.character_coverage} must be from 0.98 to 1"
            )
        if not 0 <= self.sampling <= 1:
            raise InputError(f"tokenizer.sampling={self.sampling} must be from 0 to 1; 0 is off")
