"""Makes the checks of each split of a corpus, as a config asks for them.

Knows what each check needs to know beforehand: what is usual in the training text, and what is held
out of it. Does not know what comes of them.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice

from transformer.common.errors import how_to_install
from transformer.data.corpora.resolve import Split
from transformer.data.quality.base import Check, PairCheck
from transformer.data.quality.checks.corpus.duplicates import Repeats
from transformer.data.quality.checks.corpus.test_leakage import HeldOutText, Leaks
from transformer.data.quality.checks.one_side.alphabet import Alphabet, UnknownCharacters, known_to
from transformer.data.quality.checks.one_side.characters import (
    ControlCharacters,
    DecomposedCharacters,
    ReplacementCharacters,
)
from transformer.data.quality.checks.one_side.encoding_damage import Decoder, Mojibake
from transformer.data.quality.checks.one_side.markup import Markup, SharedMarkup
from transformer.data.quality.checks.one_side.scripts import ForeignScript
from transformer.data.quality.checks.pair.languages import LanguageDetector, WrongLanguage
from transformer.data.quality.checks.pair.lengths import Disproportion, EmptySides, Overlong
from transformer.data.quality.checks.pair.misalignment import Misalignment
from transformer.data.quality.checks.pair.numbers import Numbers
from transformer.data.quality.checks.pair.untranslated import Copies
from transformer.data.quality.checks.pair.urls import Addresses
from transformer.data.quality.config import ExaminationConfig
from transformer.data.quality.pair import NumberedPair, numbered
from transformer.data.quality.profile import SAMPLE, Profile
from transformer.data.quality.token_counts import CountedTokens, EstimatedTokens, TokenCount
from transformer.data.tokenization.tokenizer import Tokenizer

_CHUNK = 1024
_SIMPLE: tuple[type[PairCheck], ...] = (
    EmptySides,
    Numbers,
    Addresses,
    ControlCharacters,
    Markup,
    SharedMarkup,
    ReplacementCharacters,
    DecomposedCharacters,
)
_EXTRA = how_to_install("doctor")


class Checks:
    """The checks of one corpus."""

    def __init__(
        self,
        splits: Mapping[str, Split],
        config: ExaminationConfig,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Set out what to look for; nothing is read yet.

        Args:
            splits: by name; "train" is among them.
            config: what to look for.
            tokenizer: cuts the text; None estimates.
        """
        self._splits, self._config = splits, config
        self.count: TokenCount = EstimatedTokens()
        self._known = None
        if tokenizer is not None:
            self.count, self._known = CountedTokens(tokenizer), known_to(tokenizer)
        self.skipped: dict[str, str] = {}
        """What cannot be looked for, and what it needs; complete when checks were made."""

    def pairs(self, split: str) -> Iterator[NumberedPair]:
        """Yield the pairs of a split that count; raises InputError as `Split` does."""
        stream = islice(numbered(self._splits[split]), self._config.most)
        while chunk := list(islice(stream, _CHUNK)):
            sources = [pair[0] for _, pair in chunk]
            targets = [pair[1] for _, pair in chunk]
            counts = zip(*self.count(sources, targets), strict=True)
            for (line, (source, target)), lengths in zip(chunk, counts, strict=True):
                yield NumberedPair(line, source, target, *lengths)

    def of(self, split: str) -> list[Check]:
        """Return new checks for the pairs of a split; of leaks `leaks` makes one.

        Raises:
            InputError: the training text cannot be read.
        """
        config = self._config
        wanted, new = config.checks, (split, config.examples)
        checks: list[Check] = [kind(*new) for kind in _SIMPLE if kind.name in wanted]
        if Overlong.name in wanted:
            checks.append(Overlong(*new, config.max_length))
        if Disproportion.name in wanted:
            checks.append(Disproportion(*new, self._profile.lengths, config.ratio))
        if Copies.name in wanted:
            checks.append(Copies(*new, self._profile.lexicon))
        if ForeignScript.name in wanted:
            checks.append(ForeignScript(*new, self._profile.scripts))
        if WrongLanguage.name in wanted and self._profile.languages is not None:
            checks.append(WrongLanguage(*new, self._profile.languages, self._profile.lexicon))
        if UnknownCharacters.name in wanted and self._known is not None:
            checks.append(UnknownCharacters(*new, self._known))
        if not wanted.isdisjoint(Repeats.names):
            checks.append(Repeats(*new))
        if not wanted.isdisjoint(Misalignment.names):
            checks.append(Misalignment(*new))
        return checks + self._mojibake(new)

    def leaks(self) -> list[Check]:
        """Return the check of the training text for held-out text, which is read here.

        Raises:
            InputError: it cannot be read.
        """
        if self._config.checks.isdisjoint(Leaks.names):
            return []
        held_out = HeldOutText()
        for name, split in self._splits.items():
            if name != "train":
                for line, (source, target) in numbered(split):
                    held_out.add(name, NumberedPair(line, source, target, 0, 0))
        return [Leaks(held_out, self._config.examples)]

    def alphabet(self) -> Alphabet | None:
        """Return what is to take in the characters of the training text, if no tokenizer tells."""
        wanted = UnknownCharacters.name in self._config.checks
        return Alphabet() if wanted and self._known is None else None

    def learn(self, alphabet: Alphabet) -> None:
        """Take the characters of the training text for those that are known."""
        self._known = alphabet.known()

    def _mojibake(self, new: tuple[str, int]) -> list[Check]:
        if Mojibake.name not in self._config.checks:
            return []
        try:
            return [Mojibake(*new, Decoder())]
        except ImportError:
            self.skipped[Mojibake.name] = f"needs ftfy: {_EXTRA}"
            return []

    @cached_property
    def _profile(self) -> Profile:
        sample = [pair for _, pair in islice(numbered(self._splits["train"]), SAMPLE)]
        return Profile.of(sample, self._config.languages, self._detector)

    @cached_property
    def _detector(self) -> LanguageDetector | None:
        if WrongLanguage.name not in self._config.checks:
            return None
        try:
            return LanguageDetector()
        except ImportError:
            self.skipped[WrongLanguage.name] = f"needs py3langid: {_EXTRA}"
            return None
