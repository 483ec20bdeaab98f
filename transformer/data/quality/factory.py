"""Builds the checks of each split of a corpus.

Some compare a pair with what is usual in the training text, or with held-out text, read here.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from itertools import islice

from transformer.common.errors import how_to_install
from transformer.data.corpora.resolve import Split
from transformer.data.quality.base import Check, PairCheck
from transformer.data.quality.checks.corpus.duplicates import Repeats
from transformer.data.quality.checks.corpus.test_leakage import Leaks
from transformer.data.quality.checks.lexicon import Lexicon
from transformer.data.quality.checks.one_side.alphabet import UnknownCharacters
from transformer.data.quality.checks.one_side.characters import (
    ControlCharacters,
    DecomposedCharacters,
    ReplacementCharacters,
)
from transformer.data.quality.checks.one_side.encoding_damage import Mojibake
from transformer.data.quality.checks.one_side.markup import Markup, SharedMarkup
from transformer.data.quality.checks.one_side.scripts import ForeignScript, frequent_scripts
from transformer.data.quality.checks.pair.languages import Language, WrongLanguage
from transformer.data.quality.checks.pair.lengths import (
    Disproportion,
    EmptySides,
    Overlong,
    UsualLengths,
)
from transformer.data.quality.checks.pair.misalignment import Misalignment
from transformer.data.quality.checks.pair.numbers import Numbers
from transformer.data.quality.checks.pair.untranslated import Copies
from transformer.data.quality.checks.pair.urls import Addresses
from transformer.data.quality.config import ExaminationConfig
from transformer.data.quality.pair import SIDES, NumberedPair
from transformer.data.quality.texts import numbered
from transformer.data.quality.token_counts import count_tokens
from transformer.data.text.parallel import Pair
from transformer.data.tokenization.tokenizer import Tokenizer

_CHUNK = 1024
# Pairs of the training text that tell what is usual.
_SAMPLE = 50_000
_PACKAGES = {Mojibake.name: "ftfy", WrongLanguage.name: "py3langid"}
_SIMPLE: tuple[type[PairCheck], ...] = (
    *(EmptySides, Numbers, Addresses, ControlCharacters, Markup, SharedMarkup),
    *(ReplacementCharacters, DecomposedCharacters, Mojibake),
)


class Checks:
    """The checks of one corpus."""

    def __init__(
        self,
        splits: Mapping[str, Split],
        config: ExaminationConfig,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Choose the checks; nothing is read yet.

        Args:
            splits: by name, with "train".
            config: the enabled checks and their settings.
            tokenizer: counts tokens and knows characters; None estimates.
        """
        self.splits, self.config, self._tokenizer = splits, config, tokenizer
        self.skipped = {
            name: f"needs {package}: {how_to_install('doctor')}"
            for name, package in _PACKAGES.items()
            if name in config.checks and find_spec(package) is None
        }
        """Checks whose package is not installed, and how to install it."""
        self._enabled = config.checks - self.skipped.keys()
        self._known_characters = {side: {" "} for side in SIDES}

    def pairs(self, split: str) -> Iterator[NumberedPair]:
        """Yield the pairs to examine, with token counts; raises InputError as `Split` does."""
        stream = islice(numbered(self.splits[split]), self.config.max_pairs)
        while chunk := list(islice(stream, _CHUNK)):
            sources, targets = zip(*(pair.texts for pair in chunk), strict=True)
            counts = zip(*count_tokens(self._tokenizer, sources, targets), strict=True)
            for pair, tokens in zip(chunk, counts, strict=True):
                yield NumberedPair(*pair[:3], *tokens)

    def build(self, split: str) -> list[Check]:
        """Return new checks for the pairs of a split.

        Raises:
            InputError: the training text, or held-out text, cannot be read.
        """
        enabled, new = self._enabled, (split, self.config.examples)
        checks: list[Check] = [kind(*new) for kind in _SIMPLE if kind.name in enabled]
        if Overlong.name in enabled:
            checks.append(Overlong(*new, self.config.max_length))
        if Disproportion.name in enabled:
            checks.append(Disproportion(*new, self._lengths, self.config.ratio))
        if Copies.name in enabled:
            checks.append(Copies(*new, self._lexicon))
        if ForeignScript.name in enabled:
            checks.append(ForeignScript(*new, self._scripts))
        if WrongLanguage.name in enabled:
            checks.append(WrongLanguage(*new, self._languages, self._lexicon))
        if UnknownCharacters.name in enabled:
            checks.append(UnknownCharacters(*new, self._tokenizer, self._known_characters))
        if not enabled.isdisjoint(Repeats.names):
            checks.append(Repeats(*new))
        if not enabled.isdisjoint(Misalignment.names):
            checks.append(Misalignment(*new))
        if split == "train" and not enabled.isdisjoint(Leaks.names):
            held_out = {name: text for name, text in self.splits.items() if name != "train"}
            checks.append(Leaks(held_out, self.config.examples))
        return checks

    @cached_property
    def _sample(self) -> list[Pair]:
        """The first pairs of the training text without empty sides."""
        pairs = (pair.texts for pair in islice(numbered(self.splits["train"]), _SAMPLE))
        return [texts for texts in pairs if all(text and not text.isspace() for text in texts)]

    @cached_property
    def _sides(self) -> tuple[list[str], list[str]]:
        return [source for source, _ in self._sample], [target for _, target in self._sample]

    @cached_property
    def _lengths(self) -> UsualLengths:
        return UsualLengths.fit(self._sample)

    @cached_property
    def _lexicon(self) -> Lexicon:
        return Lexicon(self._sample)

    @cached_property
    def _scripts(self) -> tuple[frozenset[str], frozenset[str]]:
        source, target = map(frequent_scripts, self._sides)
        return source, target

    @cached_property
    def _languages(self) -> tuple[Language, Language]:
        source, target = map(Language, self.config.languages, self._sides)
        return source, target
