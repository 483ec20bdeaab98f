"""Counts the flags of many outputs, beside those of their references."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformer.decoding.document_translator import DocumentTranslator
from transformer.decoding.translator import Translation, Translator
from transformer.evaluation.metrics import scored_lines
from transformer.quality.failures.flags import FLAGS, Detector, Output, units

# An output is detached from its source if so many different sources have it, and it has so many
# words.
_MIN_SOURCES = 3
_MIN_WORDS = 6

SentenceFlags = tuple[str, ...]


@dataclass(frozen=True)
class Failures:
    """The flags of each output and of its first reference; ``names`` were looked for."""

    names: tuple[str, ...]
    hypotheses: Sequence[SentenceFlags]
    references: Sequence[SentenceFlags]
    sentences: int
    """How many there are, without the blank lines between documents."""

    def lines(self, flag: str) -> list[int]:
        """Indices of the outputs with a flag, from 0."""
        return [index for index, flags in enumerate(self.hypotheses) if flag in flags]

    def reference_count(self, flag: str) -> int | None:
        """None for ``low_confidence``: a model finds its own text more probable than others'."""
        if flag == "low_confidence":
            return None
        return sum(flag in flags for flags in self.references)

    def rates(self) -> dict[str, float]:
        """Percent of the outputs by flag, then of references for those flags that they have."""
        total = max(1, self.sentences)
        rates = {flag: 100 * len(self.lines(flag)) / total for flag in self.names}
        counts = ((f"{flag}_reference", self.reference_count(flag)) for flag in self.names)
        return rates | {name: 100 * count / total for name, count in counts if count}

    def to_json(self) -> dict[str, Any]:
        flags = {}
        for flag in self.names:
            lines = self.lines(flag)
            flags[flag] = {
                "hypothesis": len(lines),
                "reference": self.reference_count(flag),
                "lines": lines,
            }
        return {"sentences": self.sentences, "flags": flags}


def find_failures(
    detector: Detector,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    outputs: Sequence[Output],
    reference_flags: Sequence[SentenceFlags] | None = None,
) -> Failures:
    """Flag outputs and the first reference of each, unless its flags are known."""
    first = [texts[0] for texts in references]
    if reference_flags is None:
        reference_flags = _flag_all(detector, sources, list(map(Output, first)), None)
    hypothesis_flags = _flag_all(detector, sources, outputs, first)
    sentences = len(scored_lines(sources, references))
    return Failures(detector.names, hypothesis_flags, reference_flags, sentences)


def _flag_all(
    detector: Detector,
    sources: Sequence[str],
    outputs: Sequence[Output],
    references: Sequence[str] | None,
) -> list[SentenceFlags]:
    by_text: defaultdict[str, set[str]] = defaultdict(set)
    for source, output in zip(sources, outputs, strict=True):
        by_text[output.text].add(source)
    detached = {
        text
        for text, different in by_text.items()
        if len(different) >= _MIN_SOURCES and len(units(text)) >= _MIN_WORDS
    }
    found = []
    for index, (source, output) in enumerate(zip(sources, outputs, strict=True)):
        flags = detector.flags(source, output, None if references is None else references[index])
        flags += ("detached",) if output.text in detached and source.strip() else ()
        found.append(tuple(sorted(flags, key=FLAGS.index)))
    return found


def as_output(translation: Translation) -> Output:
    """The best candidate of a translation, with its probability and whether it was cut."""
    best = translation.nbest[0]
    return Output(translation.text, best.log_probability / best.length, best.is_unfinished)


def as_outputs(
    translations: Sequence[Translation], translator: Translator | DocumentTranslator
) -> list[Output]:
    """The best candidates; the text alone of documents, whose sentences are searched together."""
    if isinstance(translator, DocumentTranslator):
        return [Output(translation.text) for translation in translations]
    return list(map(as_output, translations))
