"""Scores a translator on disturbed text or files, beside the clean ones (docs/robustness.md)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from random import Random
from time import perf_counter
from typing import Any

from sacrebleu.metrics import CHRF

from transformer.common.errors import InputError
from transformer.data.features.read_source import ReadSource
from transformer.data.text.parallel import Pair, Referenced
from transformer.data.text_noise import DISTURBANCES, Disturbance
from transformer.data.tokenization.tags import parse_tags, with_tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.data.tokenization.vocabulary import FEATURES
from transformer.decoding.translator import Translator
from transformer.evaluation.metrics import Score, score
from transformer.quality.failures.flags import Detector
from transformer.quality.failures.monitor import as_outputs, find_failures
from transformer.settings.metrics import MetricsConfig


@dataclass(frozen=True)
class Stress:
    """What a disturbance does to a translator.

    Attributes:
        changed: Percent of the inputs that differ from the clean text.
        loss: By how much the score is worse than on clean text; both are None without a reference.
        unchanged: Percent of outputs that equal the clean output, if the target must not change.
        agreement: chrF against the clean outputs, changed as references are; None if all are blank.
        failures: Number of outputs by flag.
    """

    name: str
    inputs: int
    changed: float
    score: float | None
    loss: float | None
    unchanged: float | None
    agreement: float | None
    failures: dict[str, int]


@dataclass(frozen=True)
class StressReport:
    """The scores of one text, clean and under each disturbance."""

    metric: str
    signature: str
    sentences: int
    clean: float
    clean_failures: dict[str, int]
    """Number of outputs of the clean text by flag."""
    disturbances: list[Stress]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_OF_WHOLE_SOURCES = ("twice", "other_language")
"""Disturbances of one pair whose new source is another text, which its features do not fit."""


def disturbances_of(tokenizer: Tokenizer) -> Mapping[str, Disturbance]:
    """All disturbances of the sources of a tokenizer, text or files, by name.

    The features of a source stay: those that replace them, or join several sources, are left out.
    """
    if tokenizer.reads_files:
        from transformer.quality.file_disturbances import file_disturbances

        return file_disturbances(tokenizer)
    if tokenizer.config.features is None:
        return DISTURBANCES
    return {
        name: replace(disturbance, change=_beside_features(disturbance.change))
        for name, disturbance in DISTURBANCES.items()
        if disturbance.window == 1 and name not in _OF_WHOLE_SOURCES
    }


def _beside_features(
    change: Callable[[Sequence[Pair], Random], Pair],
) -> Callable[[Sequence[Pair], Random], Pair]:
    def changed(window: Sequence[Pair], random: Random) -> Pair:
        [(source, target)] = window
        text, tab, features = source.partition(FEATURES)
        if not text.strip():
            return window[0]
        text, target = change([(text, target)], random)
        return f"{text}{tab}{features}", target

    return changed


def sample_size(translator: Translator, sources: Sequence[str], texts: int, seconds: float) -> int:
    """How many sources can be translated ``texts`` times in about so many seconds, at least 20.

    The speed is that of the first 20; 20, 50, 100, 200, 500 and so on, so that small differences in
    speed give the same sample.
    """
    first = sources[:20]
    translator.translate(first[:1])  # the first call of a process takes longer
    start = perf_counter()
    translator.translate(first)
    most = seconds * len(first) / (perf_counter() - start) / texts
    sizes = [step * 10**power for power in range(1, 7) for step in (2, 5, 10)]
    return min(len(sources), max(size for size in sizes if size <= max(most, 20)))


class StressTest:
    """Disturbs one text, and translates it."""

    def __init__(
        self,
        translator: Translator,
        detector: Detector | None,
        texts: Sequence[Referenced],
        metrics: MetricsConfig,
        metric: str,
        seed: int = 1,
        disturbances: Mapping[str, Disturbance] = DISTURBANCES,
    ) -> None:
        """Store the test, without blank sources; InputError if all are blank.

        Without a detector, as for sources that are files, no flags are counted.
        """
        self._translator = translator
        self._disturbances = disturbances
        self._detector = detector
        self._seed = seed
        self._texts = [text for text in texts if text[0].strip()]
        if not self._texts:
            raise InputError("all sources are blank; give another text")
        self._metrics = metrics
        self._metric = metric

    def run(
        self, names: Sequence[str] | None = None, begins: Callable[[str], object] = str
    ) -> StressReport:
        """Score the clean text, then each disturbance, of all or those of these names.

        ``begins`` is called with each name.
        """
        sources, references = zip(*self._texts, strict=True)
        translations = self._translator.translate(sources)
        clean = [translation.text for translation in translations]
        best = self._score(clean, references, sources)
        results = []
        for name in self._disturbances if names is None else names:
            begins(name)
            results.append(self._measured(self._disturbances[name], clean, best))
        value = round(best.value, 2)
        flags = self._flags(sources, references, translations)
        return StressReport(best.name, best.signature, len(clean), value, flags, results)

    def _flags(
        self,
        sources: Sequence[str],
        references: Sequence[Sequence[str]],
        translations: Sequence[Any],
    ) -> dict[str, int]:
        if self._detector is None:
            return {}
        outputs = as_outputs(translations, self._translator)
        flagged = find_failures(self._detector, sources, references, outputs, reference_flags=())
        return {flag: len(flagged.lines(flag)) for flag in flagged.names}

    def _score(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
    ) -> Score:
        return score(outputs, references, [self._metric], config=self._metrics, sources=sources)[0]

    def _measured(self, disturbance: Disturbance, clean: Sequence[str], best: Score) -> Stress:
        windows = list(self._windows(disturbance.window or len(self._texts)))
        texts = [self._disturbed(disturbance, window) for window in windows]
        sources = [source for source, _ in texts]
        references: list[tuple[str, ...]] = [targets for _, targets in texts]
        expected = list(clean)
        if disturbance.reference != "same" or disturbance.window != 1:
            expected = [
                self._expected(disturbance, window, source, clean)
                for window, source in zip(windows, sources, strict=True)
            ]
        translations = self._translator.translate(sources)
        outputs = [translation.text for translation in translations]
        value = loss = None
        if disturbance.reference != "none" and any(map(str.strip, sources)):
            value = self._score(outputs, references, sources).value
            loss = (best.value - value) * (1 if best.better == "higher" else -1)
        else:
            references = [("",)] * len(texts)
        agreement = CHRF().corpus_score(outputs, [expected]).score if any(expected) else None
        same = disturbance.reference == "same"
        firsts = [self._texts[window[0]][0] for window in windows]
        changed = map(_differ, sources, firsts)
        return Stress(
            disturbance.name,
            len(texts),
            _percent(changed),
            None if value is None else round(value, 2),
            None if loss is None else round(loss, 2) + 0.0,  # -0.0 becomes 0.0
            _percent(map(str.__eq__, outputs, expected)) if same else None,
            None if agreement is None else round(agreement, 2),
            self._flags(sources, references, translations),
        )

    def _expected(
        self, disturbance: Disturbance, window: Sequence[int], source: str, clean: Sequence[str]
    ) -> str:
        """The clean output, changed as a reference is.

        A change that looks at the target may change the source otherwise beside this output, or
        not at all; then the output stays as it is.
        """
        changed, (expected, *_) = self._disturbed(disturbance, window, clean)
        return expected if changed == source else clean[window[0]]

    def _windows(self, size: int) -> Iterator[list[int]]:
        """Yield indices of so many consecutive texts, fewer at the end and before other tags."""
        tags = [parse_tags(source) for source, _ in self._texts]
        for _, group in groupby(range(len(tags)), tags.__getitem__):
            indices = list(group)
            yield from (indices[at : at + size] for at in range(0, len(indices), size))

    def _disturbed(
        self, disturbance: Disturbance, window: Sequence[int], clean: Sequence[str] | None = None
    ) -> Referenced:
        """A disturbed source, and references (or the clean output) that are changed as well."""
        sources = [self._texts[index][0] for index in window]
        targets = [self._texts[i][1] if clean is None else (clean[i],) for i in window]
        seed = f"{disturbance.name} {self._seed} {window[0]}"
        columns = list(zip(*targets, strict=False))
        pairs = [
            disturbance.change(list(zip(sources, column, strict=True)), Random(seed))
            for column in columns
        ]
        source = pairs[0][0]
        # A disturbance may leave a pair as it is because of its reference. Then the source decides:
        # a reference that was changed with another source is not one of this source.
        references = tuple(
            reference if changed == source else column[0]
            for (changed, reference), column in zip(pairs, columns, strict=True)
            if changed == source or source == sources[0]
        )
        return with_tags(source, parse_tags(sources[0])), references


def _differ(source: str, before: str) -> bool:
    # A file that has been read is another one than that on the disk.
    return isinstance(source, ReadSource) or source != before


def _percent(flags: Iterable[bool]) -> float:
    values = list(flags)
    return round(100 * sum(values) / len(values), 2)
