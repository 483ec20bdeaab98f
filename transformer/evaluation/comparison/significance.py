"""Whether systems differ from a base by more than chance: the paired tests of sacreBLEU.

It knows raw text only: neither models nor files. Scores, intervals and p-values are sacreBLEU's
own, but for what `_never_below_chance` says.
Sources: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation" (paired
bootstrap); Riezler and Maxwell 2005, "On Some Pitfalls in Automatic Evaluation and Significance
Testing for MT" (approximate randomisation).
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transformer.common.errors import InputError

SURE = 0.05
"""A difference is called one when both p-values are below."""

SEED = "SACREBLEU_SEED"
"""The variable of the environment from which sacreBLEU reads its seed."""


@dataclass(frozen=True)
class Resampling:
    """How often is drawn, and from which seed.

    Attributes:
        bootstrap: Resamples of the sentences.
        randomisation: Trials that swap the two hypotheses of some sentences.
        seed: Of both.
    """

    bootstrap: int
    randomisation: int
    seed: int

    def __post_init__(self) -> None:
        """Refuse what sacreBLEU would take for something else.

        Raises:
            InputError: A number is below 1; sacreBLEU draws without a seed if it is 0.
        """
        for name in ("bootstrap", "randomisation", "seed"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1")


@dataclass(frozen=True)
class TestedScore:
    """One system by one metric.

    Attributes:
        score: From 0 to 100, or more for TER.
        mean: Of the bootstrap resamples.
        interval: Half the width of the 95 % confidence interval around ``mean``.
        difference: To the score of the base; None of the base itself, as what follows.
        p_bootstrap: How probable so large a difference is by chance, by paired bootstrap: the share
            of resamples whose absolute difference, less the mean of all absolute differences, is
            above that of the whole text.
        p_randomisation: The same by paired approximate randomisation.
    """

    __test__ = False  # not a class of tests

    score: float
    mean: float
    interval: float
    difference: float | None = None
    p_bootstrap: float | None = None
    p_randomisation: float | None = None

    @property
    def is_sure(self) -> bool:
        """Whether both tests find a difference at ``SURE``."""
        values = (self.p_bootstrap, self.p_randomisation)
        return all(p is not None and p < SURE for p in values)


@dataclass(frozen=True)
class TestedMetric:
    """All systems by one metric, the base first.

    Attributes:
        name: As sacreBLEU writes it: BLEU, chrF2, TER.
        signatures: Of the ``score``, and of the tests ``bootstrap`` and ``randomisation``.
        systems: Their scores.
    """

    __test__ = False

    name: str
    signatures: Mapping[str, str]
    systems: Sequence[TestedScore]

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric counts errors."""
        return self.name == "TER"


def paired_tests(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[str],
    metrics: Sequence[Metric],
    resampling: Resampling,
) -> list[TestedMetric]:
    """Test every other system against the first.

    Args:
        hypotheses: Of each system, one a line in the order of the references.
        references: One a line.
        metrics: sacreBLEU's.
        resampling: How often, and from which seed.

    Raises:
        InputError: There is no other system, no sentence, or the numbers of lines differ.
    """
    _check_alike(hypotheses, references)
    systems = [(str(number), lines) for number, lines in enumerate(hypotheses)]
    named = {str(index): metric for index, metric in enumerate(metrics)}
    with _seeded(resampling.seed):
        test = PairedTest(systems, named, [references], "bs", n_samples=resampling.bootstrap)
        bootstrap_signatures, bootstrap = test()
        test = PairedTest(systems, named, [references], "ar", n_samples=resampling.randomisation)
        randomisation_signatures, randomisation = test()
    found = []
    for name, metric in zip(bootstrap_signatures, metrics, strict=True):
        signatures = {
            "score": str(metric.get_signature()),
            "bootstrap": str(bootstrap_signatures[name]),
            "randomisation": str(randomisation_signatures[name]),
        }
        base, *others = hypotheses
        differing = [_differing(metric, base, other, references) for other in others]
        scores = _scores(bootstrap[name], randomisation[name], differing)
        found.append(TestedMetric(name, signatures, scores))
    return found


def _check_alike(hypotheses: Sequence[Sequence[str]], references: Sequence[str]) -> None:
    if len(hypotheses) < 2:
        raise InputError("one system alone cannot be compared; give two or more")
    if not references:
        raise InputError("there is no sentence to compare on; give at least one")
    for number, lines in enumerate(hypotheses, 1):
        if len(lines) != len(references):
            raise InputError(
                f"system {number} has {len(lines)} hypotheses for {len(references)} references; "
                "give one for each, in the same order"
            )


def _differing(
    metric: Metric, base: Sequence[str], other: Sequence[str], references: Sequence[str]
) -> Iterator[bool]:
    """Whether a metric finds something else to add up, sentence by sentence."""

    def counted(hypothesis: str, reference: str) -> list[Any]:
        # Matches and totals, say; sacreBLEU has no public way to them.
        [statistics] = metric._extract_corpus_statistics([hypothesis], [[reference]])
        return list(statistics)

    for one, another, right in zip(base, other, references, strict=True):
        yield one != another and counted(one, right) != counted(another, right)


def _scores(
    bootstrap: Sequence[Any], randomisation: Sequence[Any], differing: Sequence[Iterable[bool]]
) -> list[TestedScore]:
    """Join what the two tests say of each system; sacreBLEU's results, the base first."""
    base = bootstrap[0]
    scores = [TestedScore(float(base.score), float(base.mean), float(base.ci))]
    for resampled, swapped, differs in zip(
        bootstrap[1:], randomisation[1:], differing, strict=True
    ):
        difference = float(resampled.score - base.score)
        # Of equal scores sacreBLEU says p = 1 / (trials + 1), where no trial lies beyond.
        p_values = (1.0, 1.0)
        if difference != 0:
            p_randomisation = _never_below_chance(float(swapped.p_value), differs)
            p_values = (float(resampled.p_value), p_randomisation)
        scores.append(
            TestedScore(
                float(resampled.score),
                float(resampled.mean),
                float(resampled.ci),
                difference,
                *p_values,
            )
        )
    return scores


def _never_below_chance(p_value: float, differing: Iterable[bool]) -> float:
    """What approximate randomisation may say of systems that differ in a few sentences alone.

    Two of the 2**n ways to swap n sentences that differ give the very difference that was seen:
    all, and none. sacreBLEU counts only the trials beyond it, and would find a system that differs
    in a single sentence surely different. A sentence that the metric counts alike, such as one with
    another wrong word in place of a wrong one, may be swapped or not and changes nothing.
    """
    chance = 2.0
    for differs in differing:
        if chance <= p_value:  # More sentences only lower it.
            break
        if differs:
            chance /= 2
    return max(p_value, min(chance, 1.0))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """SacreBLEU reads its seed from the environment, and from nowhere else."""
    before = os.environ.get(SEED)
    os.environ[SEED] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED]
        else:
            os.environ[SEED] = before
