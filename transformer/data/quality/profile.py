"""What is usual in a text: lengths, words, and scripts and language of either side.

Made out from the first pairs of the training text. Does not know which pairs are faulty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from transformer.data.quality.checks.lexicon import Lexicon
from transformer.data.quality.checks.one_side.scripts import scripts_among
from transformer.data.quality.checks.pair.languages import Language, LanguageDetector
from transformer.data.quality.checks.pair.lengths import UsualLengths
from transformer.data.text.parallel import Pair

SAMPLE = 50_000
"""Pairs that it is made out from."""


@dataclass(frozen=True)
class Profile:
    """What single pairs are held against."""

    lengths: UsualLengths
    lexicon: Lexicon
    scripts: tuple[frozenset[str], frozenset[str]]
    """Of source and target."""
    languages: tuple[Language, Language] | None
    """Of source and target; None without a detector."""

    @classmethod
    def of(
        cls, pairs: Sequence[Pair], names: tuple[str, str], detector: LanguageDetector | None
    ) -> "Profile":
        """Make it out.

        Args:
            pairs: a sample of the text.
            names: of source and target in the config.
            detector: names languages; None does without.
        """
        filled = [pair for pair in pairs if all(text and not text.isspace() for text in pair)]
        sides = [source for source, _ in filled], [target for _, target in filled]
        languages = None
        if detector is not None:
            source, target = (
                Language(detector, name, texts) for name, texts in zip(names, sides, strict=True)
            )
            languages = source, target
        return cls(
            UsualLengths.of(filled),
            Lexicon(filled),
            (scripts_among(sides[0]), scripts_among(sides[1])),
            languages,
        )
