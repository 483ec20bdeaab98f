"""Builds the checks of each split of a corpus."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import islice

from transformer.common.packages import how_to_install
from transformer.data.corpora.split import NumberedPair, Split, numbered
from transformer.data.text.parallel import Pair
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.quality import check
from transformer.quality.checks import (
    characters,
    languages,
    lengths,
    markup,
    noise,
    numbers_and_urls,
)
from transformer.quality.checks.misalignment import Misalignment
from transformer.quality.checks.repeated_text import Leaks, Repeats

_CHUNK = 1024
# Bytes of UTF-8 to a token: 4.2 with 8,000 subwords of English and German (Multi30k).
_BYTES = 4
# Pairs of the training text from which usual lengths, words and scripts are learned.
_SAMPLE = 50_000
_PACKAGES = {"mojibake": "ftfy", "language": "py3langid"}


class Checks:
    """The checks of one corpus."""

    def __init__(
        self,
        splits: Mapping[str, Split],
        config: check.ExaminationConfig,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Choose the checks; without a tokenizer, tokens are estimated. The splits have "train"."""
        self.splits = splits
        self.config = config
        self._tokenizer = tokenizer
        self.skipped = {
            name: f"needs {package}: {how_to_install('doctor')}"
            for name, package in _PACKAGES.items()
            if name in config.checks and find_spec(package) is None
        }
        self._alphabet = characters.Alphabet(tokenizer)

    def pairs(self, split: str) -> Iterator[NumberedPair]:
        """Yield the pairs to examine, with token counts; raises InputError as `Split` does."""
        stream = islice(numbered(self.splits[split]), self.config.max_pairs)
        while chunk := list(islice(stream, _CHUNK)):
            sources, targets = zip(*(pair.texts for pair in chunk), strict=True)
            counts = count_tokens(self._tokenizer, sources, targets)
            for pair, source, target in zip(chunk, *counts, strict=True):
                yield pair._replace(source_tokens=source, target_tokens=target)

    def build(self, split: str) -> list[check.Check]:
        """New checks for a split; raises InputError if a text cannot be read."""
        enabled = self.config.checks - self.skipped.keys()
        new = (split, self.config.examples)
        finders = self._finders(split).items()
        checks: list[check.Check] = [
            check.PairCheck(*new, n, find) for n, find in finders if n in enabled
        ]
        if not enabled.isdisjoint(Repeats.names):
            checks.append(Repeats(*new))
        if "misaligned" in enabled:
            checks.append(Misalignment(*new))
        if split == "train" and not enabled.isdisjoint(Leaks.names):
            held_out = {name: text for name, text in self.splits.items() if name != "train"}
            checks.append(Leaks(held_out, self.config.examples))
        return checks

    def _finders(self, split: str) -> dict[str, check.FindFault]:
        """Checks that look at each pair alone, in the order of the faults of a rejected pair."""
        config = self.config
        has_features = self.splits[split].corpus.features is not None
        return {
            "empty": lengths.find_empty_side,
            "noise": noise.find_noise,
            "numbers": numbers_and_urls.find_different_numbers,
            "urls": numbers_and_urls.find_different_urls,
            "control": _find_control_in_features if has_features else characters.find_control,
            "markup": partial(markup.find_markup_fault, False),
            "markup_both": partial(markup.find_markup_fault, True),
            "replacement": characters.find_replacement,
            "not_nfc": characters.find_not_nfc,
            "mojibake": characters.find_mojibake,
            "too_long": partial(lengths.find_overlong, config.max_length),
            "ratio": lambda p: lengths.find_disproportion(self._lengths, config.ratio, p),
            "copy": lambda p: languages.find_copy(self._lexicon, p),
            "script": check.either_side(
                lambda side, text: characters.describe_foreign_script(self._scripts, side, text)
            ),
            "language": lambda p: self._find_wrong_language(p),
            "unknown_characters": check.either_side(
                partial(self._alphabet.describe, split == "train")
            ),
        }

    @cached_property
    def _sample(self) -> list[Pair]:
        pairs = (pair.texts for pair in islice(numbered(self.splits["train"]), _SAMPLE))
        return [texts for texts in pairs if all(text and not text.isspace() for text in texts)]

    @cached_property
    def _sides(self) -> tuple[list[str], list[str]]:
        return [source for source, _ in self._sample], [target for _, target in self._sample]

    @cached_property
    def _lengths(self) -> lengths.UsualLengths:
        return lengths.UsualLengths.fit(self._sample)

    @cached_property
    def _lexicon(self) -> languages.Lexicon:
        return languages.Lexicon(self._sample)

    @cached_property
    def _scripts(self) -> dict[check.Side, frozenset[str]]:
        return dict(zip(check.SIDES, map(characters.frequent_scripts, self._sides), strict=True))

    @cached_property
    def _find_wrong_language(self) -> check.FindFault:
        source, target = map(languages.Language.of, self.config.languages, self._sides)
        return partial(languages.find_wrong_language, (source, target), self._lexicon)


def count_tokens(
    tokenizer: Tokenizer | None, sources: Sequence[str], targets: Sequence[str]
) -> list[list[int]]:
    """Return the lengths of sources and of targets; None estimates a quarter of the bytes."""
    if tokenizer is None:
        sides = (sources, targets)
        return [[-(-len(text.encode()) // _BYTES) for text in texts] for texts in sides]
    encoded = tokenizer.encode_source(sources), tokenizer.encode_target(targets)
    return [list(map(len, ids)) for ids in encoded]


def _find_control_in_features(pair: NumberedPair) -> check.Fault | None:
    """The tab before the features of a source is meant."""
    return characters.find_control(pair._replace(source=pair.source.replace("\t", " ", 1)))
