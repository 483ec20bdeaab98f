"""Whether systems differ from a base by more than chance: paired tests, by any metric.

Scores, intervals and p-values are those of sacreBLEU, except for `_bounded_by_chance`. Koehn 2004
(paired bootstrap); Riezler and Maxwell 2005 (approximate randomization).
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics import TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result, estimate_ci

from transformer.evaluation.metrics import reference_streams
from transformer.settings.evaluation import Resampling
from transformer.settings.metrics import Better

SURE = 0.05
"""A difference is significant if both p-values are below."""

SEED = "SACREBLEU_SEED"
"""The variable of the environment from which sacreBLEU reads its seed."""


@dataclass(frozen=True)
class TestedScore:
    """One system by one metric.

    Attributes:
        interval: Half the width of the 95 % confidence interval around ``mean``, by bootstrap.
        difference: To the score of the base; this and the rest are None for the base itself.
        p_bootstrap: Fraction of the resamples whose absolute difference, minus the mean of all
            absolute differences, is above that of the whole text.
        p_randomization: The same by paired approximate randomization.
    """

    __test__ = False  # not a class of tests

    score: float
    mean: float
    interval: float
    difference: float | None = None
    p_bootstrap: float | None = None
    p_randomization: float | None = None

    @property
    def is_sure(self) -> bool:
        """Whether both tests find a difference at ``SURE``."""
        return all(p is not None and p < SURE for p in (self.p_bootstrap, self.p_randomization))


@dataclass(frozen=True)
class TestedMetric:
    """All systems by one metric, the base first."""

    __test__ = False

    name: str
    signatures: Mapping[str, str]
    """Of the ``score``, and of the tests ``bootstrap`` and ``randomization``."""
    systems: Sequence[TestedScore]
    better: Better


def paired_tests(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[str | Sequence[str]],
    metrics: Sequence[Metric],
    resampling: Resampling,
    sources: Sequence[str] | None = None,
) -> list[TestedMetric]:
    """Test every other system against the first; each line has one reference or more."""
    systems = [(str(number), lines) for number, lines in enumerate(hypotheses)]
    base, *compared = hypotheses
    tested = []
    for metric in metrics:
        streams = reference_streams(metric, references, sources)
        name, bootstrap = _bootstrap(hypotheses, metric, streams, resampling)
        bs_signature = metric.get_signature()
        bs_signature.update("seed", str(resampling.seed))
        bs_signature.update("bs", resampling.bootstrap)
        signatures = {"score": str(metric.get_signature()), "bootstrap": str(bs_signature)}
        randomization: Sequence[Any] = [None]
        # One system alone has an interval, and no p-values.
        if compared:
            trials = resampling.randomization
            with _seeded(resampling.seed):
                ar_signatures, results = PairedTest(systems, {"": metric}, streams, "ar", trials)()
            randomization = results[name]
            signatures["randomization"] = str(ar_signatures[name])
        differing = [_differing(metric, base, system, streams) for system in compared]
        scores = _scores(bootstrap, randomization, differing)
        better: Any = getattr(metric, "better", "lower" if isinstance(metric, TER) else "higher")
        tested.append(TestedMetric(name, signatures, scores, better))
    return tested


def _bootstrap(
    hypotheses: Sequence[Sequence[str]],
    metric: Metric,
    streams: Sequence[Sequence[Any]],
    resampling: Resampling,
) -> tuple[str, list[Result]]:
    """The name of the score, and the results of sacreBLEU's paired bootstrap.

    One resample is in memory at a time. sacreBLEU has them all, which can be 15 GB by GLEU with
    several references.
    """
    statistics = [metric._extract_corpus_statistics(system, streams) for system in hypotheses]
    generator = np.random.default_rng(resampling.seed)
    lines = len(statistics[0])
    resamples = generator.choice(lines, size=(resampling.bootstrap, lines))
    results: list[Result] = []
    resampled: list[Any] = []
    for sums in statistics:
        score = metric._aggregate_and_compute(sums)
        by_line = np.array(sums, dtype="float32")
        scores = [
            metric._compute_score_from_stats(by_line[rows].sum(0)).score for rows in resamples
        ]
        resampled.append(np.array(scores))
        mean, interval = estimate_ci(resampled[-1])
        results.append(Result(score.score, mean=mean, ci=interval))
    for result, values in zip(results[1:], resampled[1:], strict=True):
        differences = abs(values - resampled[0])
        above = differences - differences.mean() > abs(result.score - results[0].score)
        result.p_value = (above.sum() + 1) / (len(above) + 1)
    return score.name, results


def _differing(
    metric: Metric, base: Sequence[str], system: Sequence[str], streams: Sequence[Sequence[Any]]
) -> Iterator[bool]:
    """Whether the statistics of each sentence of two systems differ."""

    def statistics(hypothesis: str, references: Sequence[Any]) -> list[Any]:
        # Such as matches and totals; sacreBLEU has no public interface for them.
        [sums] = metric._extract_corpus_statistics(
            [hypothesis], [[reference] for reference in references]
        )
        return list(sums)

    for before, after, *references in zip(base, system, *streams, strict=True):
        yield before != after and statistics(before, references) != statistics(after, references)


def _scores(
    bootstrap: Sequence[Any], randomization: Sequence[Any], differing: Sequence[Iterable[bool]]
) -> list[TestedScore]:
    base = bootstrap[0]
    scores = [TestedScore(float(base.score), float(base.mean), float(base.ci))]
    for resampled, swapped, differs in zip(
        bootstrap[1:], randomization[1:], differing, strict=True
    ):
        difference = float(resampled.score - base.score)
        p_bootstrap = 1.0
        p_randomization = 1.0
        if difference != 0:  # else sacreBLEU may give p = 1 / (trials + 1)
            p_bootstrap = float(resampled.p_value)
            p_randomization = _bounded_by_chance(float(swapped.p_value), differs)
        scores.append(
            TestedScore(
                score=float(resampled.score),
                mean=float(resampled.mean),
                interval=float(resampled.ci),
                difference=difference,
                p_bootstrap=p_bootstrap,
                p_randomization=p_randomization,
            )
        )
    return scores


def _bounded_by_chance(p_value: float, differing: Iterable[bool]) -> float:
    """Bound the p-value of systems that differ in a few sentences only.

    Of the 2**n ways to swap n differing sentences, two give the observed difference: all, and none.
    sacreBLEU counts only larger differences, and would find a difference in a single sentence
    significant. A sentence with equal statistics, such as one wrong word for another, does not
    count as differing.
    """
    chance = 2.0
    for differs in differing:
        if chance <= p_value:  # more sentences only lower it
            break
        if differs:
            chance /= 2
    return max(p_value, min(chance, 1.0))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """SacreBLEU reads its seed only from the environment."""
    before = os.environ.get(SEED)
    os.environ[SEED] = str(seed)
    logger = logging.getLogger("sacrebleu")
    level = logger.level
    logger.setLevel(logging.WARNING)  # it logs every system
    try:
        yield
    finally:
        logger.setLevel(level)
        del os.environ[SEED]
        if before is not None:
            os.environ[SEED] = before
