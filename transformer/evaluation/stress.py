"""Scores a translator on disturbed text, beside the clean text.

It knows neither files nor tables. docs/robustness.md has the definitions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from sacrebleu.metrics import CHRF

from transformer.data.disturbance.catalog import DISTURBANCES, Disturbance
from transformer.data.text.parallel import Referenced
from transformer.data.tokenization.tags import parse_tags, with_tags
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.failures.flags import Detector
from transformer.evaluation.failures.monitor import as_outputs, find_failures
from transformer.evaluation.metrics import MetricsConfig, score


@dataclass(frozen=True)
class Stress:
    """What a disturbance does to a translator.

    Attributes:
        inputs: Number of disturbed texts.
        changed: Per cent of them that differ from the clean text.
        score, loss: The metric, and by how much it is worse than on clean text; None without a
            reference.
        unchanged: Per cent of outputs that equal the clean output, if the target must not change.
        agreement: chrF of the outputs against the clean outputs, changed as references are; None
            if they are blank.
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
    disturbances: list[Stress]

    def to_json(self) -> dict[str, Any]:
        """The content of ``stress.json``."""
        return asdict(self)


@dataclass(frozen=True)
class StressTest:
    """Disturbs one text, and translates it.

    Attributes:
        texts: Sources with their references; none is blank.
        metric: Name of the metric of ``metrics``.
        seed: Of what is random in a disturbance.
    """

    translator: Translator
    detector: Detector
    texts: Sequence[Referenced]
    metrics: MetricsConfig
    metric: str
    seed: int = 1

    def run(self, names: Sequence[str]) -> StressReport:
        """Score the clean text, then each disturbance by its name in ``DISTURBANCES``."""
        sources, references = zip(*self.texts, strict=True)
        clean = [found.text for found in self.translator.translate(sources)]
        [found] = score(clean, references, [self.metric], config=self.metrics, sources=sources)
        worse = 1 if found.better == "higher" else -1
        results = [self._measured(DISTURBANCES[n], clean, found.value, worse) for n in names]
        value = round(found.value, 2)
        return StressReport(found.name, found.signature, len(clean), value, results)

    def _measured(
        self, disturbance: Disturbance, clean: Sequence[str], best: float, worse: int
    ) -> Stress:
        texts = list(self._disturbed(disturbance, [targets for _, targets in self.texts]))
        expected = [
            targets[0] for _, targets in self._disturbed(disturbance, [(one,) for one in clean])
        ]
        sources, references = zip(*texts, strict=True)
        found = self.translator.translate(sources)
        outputs = [one.text for one in found]
        kind, value = disturbance.reference, None
        if kind != "none" and any(map(str.strip, sources)):
            scored = (outputs, references, [self.metric])
            value = score(*scored, config=self.metrics, sources=sources)[0].value
        right = references if kind != "none" else [("",)] * len(texts)
        flagged = find_failures(
            *(self.detector, sources, right, as_outputs(found, self.translator)), of_references=()
        )
        agreement = CHRF().corpus_score(outputs, [expected]).score if any(expected) else None
        return Stress(
            disturbance.name,
            len(texts),
            _percent([a != b for a, b in zip(sources, self._sources(disturbance), strict=True)]),
            None if value is None else round(value, 2),
            None if value is None else round(worse * (best - value), 2),
            _percent(map(str.__eq__, outputs, expected)) if kind == "same" else None,
            None if agreement is None else round(agreement, 2),
            {flag: len(flagged.lines(flag)) for flag in flagged.names},
        )

    def _disturbed(
        self, disturbance: Disturbance, targets: Sequence[tuple[str, ...]]
    ) -> Iterator[Referenced]:
        """Yield disturbed sources with changed targets; a window takes its fewest targets."""
        size = disturbance.window or len(self.texts)
        for start in range(0, len(self.texts), size):
            sources = [source for source, _ in self.texts[start : start + size]]
            window = targets[start : start + size]
            pairs = [
                disturbance.change(
                    list(zip(sources, column, strict=True)),
                    Random(f"{disturbance.name} {self.seed} {start}"),
                )
                for column in zip(*window, strict=False)
            ]
            tags = parse_tags(sources[0])
            yield with_tags(pairs[0][0], tags), tuple(target for _, target in pairs)

    def _sources(self, disturbance: Disturbance) -> list[str]:
        """The first clean source of each window."""
        size = disturbance.window or len(self.texts)
        return [source for source, _ in self.texts[::size]]


def _percent(flags: Any) -> float:
    values = list(flags)
    return round(100 * sum(values) / len(values), 2)
