"""How to search, as plain values: what ``conf/decoding`` holds and a checkpoint stores.

It does not know the searches, nor the model.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, overload

from torch import Tensor

from transformer.common.errors import raise_objections
from transformer.decoding.search.length_penalty import PenaltyForm, length_penalty

Stopping = Literal["exact", "full"]
Algorithm = Literal["beam", "greedy", "sampling", "diverse", "mbr"]
CandidateSearch = Literal["sampling", "beam", "diverse"]


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How to search; the values live in ``conf/decoding``.

    Attributes:
        algorithm: ``beam``, ``greedy``, ``sampling``, ``diverse`` beam search, or ``mbr``, minimum
            Bayes risk.
        beam_size: Hypotheses that are followed at once, for each sentence, by ``beam`` and
            ``diverse``; the others have 1.
        length_penalty: The exponent alpha of ``scoring.length_penalty``; larger favours longer
            hypotheses, 0 compares log-probabilities as they are.
        length_penalty_form: See ``scoring.length_penalty``.
        coverage_penalty: The factor beta of ``coverage.py``; 0 goes without.
        max_length_ratio: See ``max_length_offset``.
        max_length_offset: A hypothesis has at most ``max_length_ratio`` times the pieces of its
            source plus this many pieces; there the end of the sentence is forced.
        min_length: Pieces that a hypothesis has at least, where the upper limit leaves room.
        no_repeat_ngram: No sequence of so many pieces occurs twice in a hypothesis; 0 lets it.
        eos_threshold: The sentence may end only where the log-probability of that is more than
            this times that of the best piece (Hannun et al. 2019, "Sequence-to-Sequence Speech
            Recognition with Time-Depth Separable Convolutions", section 3.2.2); 0 lets it.
        stopping: When a beam ends: ``exact``, when no hypothesis that goes on could still be among
            the ``nbest``; ``full``, also when ``beam_size`` are finished, as in other toolkits.
        nbest: Hypotheses that are returned for each sentence, the best first; for ``sampling``
            the samples that are drawn, for ``mbr`` the candidates of the highest expected utility.
        groups: Of ``diverse``: the beam is cut into so many groups.
        diversity: Of ``diverse``: what a token loses for each hypothesis of an earlier group that
            has just chosen it.
        temperature: Of ``sampling``: logits are divided by it first.
        top_k: Of ``sampling``: only the so many most probable tokens; 0 takes all.
        top_p: Of ``sampling``: only the fewest most probable tokens that have this mass.
        min_p: Of ``sampling``: only tokens with this share of the best one's probability.
        epsilon: Of ``sampling``: only tokens of at least this probability.
        seed: Of ``sampling``: together with the text it decides what is drawn.
        candidates: Of ``mbr``: so many are compared, each with all.
        candidates_by: Of ``mbr``: the search that finds them, ``sampling``, ``beam`` or
            ``diverse``; its own settings count. A beam is as wide as there are candidates.
        utility: Of ``mbr``: by what they are compared, ``chrf``, ``bleu`` or ``MODULE:CALLABLE``
            (``utility.py``).

    Raises:
        InputError: A value is out of its range or the values contradict each other.
    """

    algorithm: Algorithm
    beam_size: int
    length_penalty: float
    max_length_ratio: float
    max_length_offset: int
    min_length: int
    nbest: int
    length_penalty_form: PenaltyForm
    coverage_penalty: float
    no_repeat_ngram: int
    eos_threshold: float
    stopping: Stopping
    groups: int
    diversity: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    epsilon: float
    seed: int
    candidates: int
    candidates_by: CandidateSearch
    utility: str

    def __post_init__(self) -> None:
        raise_objections(_ranges(self))
        raise_objections(_contradictions(self))

    @property
    def width(self) -> int:
        """Hypotheses that the step computes at once, for each sentence."""
        search = self.of_candidates
        return search.nbest if search.algorithm == "sampling" else search.beam_size

    @property
    def width_key(self) -> str:
        """The setting that makes the search as wide as it is."""
        return {"sampling": "nbest", "mbr": "candidates"}.get(self.algorithm, "beam_size")

    @property
    def of_candidates(self) -> "SearchConfig":
        """The search that finds what ``mbr`` compares; that of any other algorithm is itself."""
        if self.algorithm != "mbr":
            return self
        changes: dict[str, Any] = {
            **OF_ONE_ALGORITHM["mbr"],
            "algorithm": self.candidates_by,
            "beam_size": 1 if self.candidates_by == "sampling" else self.candidates,
            "nbest": self.candidates,
        }
        return replace(self, **changes)

    @overload
    def penalty(self, length: int) -> float: ...

    @overload
    def penalty(self, length: Tensor) -> Tensor: ...

    def penalty(self, length: int | Tensor) -> float | Tensor:
        """The length penalty of so many tokens, the end of the sentence included."""
        return length_penalty(length, self.length_penalty, self.length_penalty_form)

    def limit(self, source_length: int) -> int:
        """Pieces that the translation of ``source_length`` pieces may have, at least one."""
        return max(1, int(self.max_length_ratio * source_length + self.max_length_offset))


def _ranges(config: SearchConfig) -> Iterator[str]:
    for name, hint in (
        ("algorithm", Algorithm),
        ("length_penalty_form", PenaltyForm),
        ("stopping", Stopping),
        ("candidates_by", CandidateSearch),
    ):
        value = getattr(config, name)
        if value not in get_args(hint):
            yield f"decoding.{name}={value} is unknown; choose {' or '.join(get_args(hint))}"
    if not math.isfinite(config.length_penalty):
        yield f"decoding.length_penalty={config.length_penalty} must be finite"
    for words, (names, holds) in RANGES.items():
        for name in names:
            if not holds(getattr(config, name)):
                yield f"decoding.{name}={getattr(config, name)} must be {words}"


def _contradictions(config: SearchConfig) -> Iterator[str]:
    if config.algorithm == "greedy" and config.beam_size != 1:
        yield (
            f"decoding.algorithm=greedy follows one hypothesis, not decoding.beam_size="
            f"{config.beam_size}; set decoding.algorithm=beam"
        )
    if config.algorithm == "sampling" and config.beam_size != 1:
        yield (
            f"decoding.algorithm=sampling draws decoding.nbest samples, and follows no decoding."
            f"beam_size={config.beam_size}; set decoding=sampling, or decoding.beam_size=1"
        )
    mbr = config.algorithm == "mbr"
    searching = config.candidates_by if mbr else config.algorithm
    most = "candidates" if mbr else "beam_size"
    width = getattr(config, most)
    if (mbr or searching != "sampling") and config.nbest > width:
        yield (
            f"decoding.nbest={config.nbest} is more than decoding.{most}={width} "
            f"can find; set decoding.{most}={config.nbest} or larger (translate shows them with "
            "format=json)"
        )
    if searching == "diverse" and width % config.groups:
        yield (
            f"decoding.{most}={width} cannot be cut into decoding.groups={config.groups} of one "
            "size"
        )
    if mbr:
        yield from _idle_in_mbr(config)
    for algorithm, idle in OF_ONE_ALGORITHM.items():
        for name, off in idle.items():
            if algorithm in (config.algorithm, searching) or getattr(config, name) == off:
                continue
            key = "candidates_by" if mbr else "algorithm"
            remedy = f"decoding.{name}={off}" if mbr else f"decoding={algorithm} too"
            yield (
                f"decoding.{name}={getattr(config, name)} is of decoding.{key}={algorithm}, "
                f"not of {searching}; set {remedy}"
            )


def _idle_in_mbr(config: SearchConfig) -> Iterator[str]:
    """What says nothing where candidates are compared, or too little."""
    if config.candidates == 1:
        yield "decoding.candidates=1 leaves nothing to compare; set decoding=mbr, or a number"
    if config.beam_size != 1:
        yield (
            f"decoding.algorithm=mbr follows decoding.candidates hypotheses, not decoding.beam_size"
            f"={config.beam_size}; set decoding=mbr, or decoding.beam_size=1"
        )
    idle = ["coverage_penalty"]
    if config.candidates_by == "sampling":
        idle.append("length_penalty")
    for name in idle:
        if getattr(config, name):
            yield (
                f"decoding.{name}={getattr(config, name)} ranks nothing where decoding.algorithm="
                f"mbr ranks by utility; set decoding=mbr, or decoding.{name}=0"
            )


RANGES: dict[str, tuple[tuple[str, ...], Callable[[float], bool]]] = {
    "at least 1": (("beam_size", "nbest", "groups", "candidates"), lambda value: value >= 1),
    # A checkpoint may be somebody else's: what it asks for must come to an end.
    "at most 10,000": (
        (
            *("beam_size", "nbest", "groups", "candidates"),
            *("max_length_ratio", "max_length_offset", "min_length"),
        ),
        lambda value: value <= 10_000,
    ),
    "at least 0": (
        (
            *("max_length_ratio", "max_length_offset", "min_length", "no_repeat_ngram", "top_k"),
            *("eos_threshold", "diversity", "coverage_penalty", "seed"),
        ),
        lambda value: 0 <= value < math.inf,
    ),
    "above 0": (("temperature",), lambda value: 0 < value < math.inf),
    "in (0, 1]": (("top_p",), lambda value: 0 < value <= 1),
    "in [0, 1)": (("min_p", "epsilon"), lambda value: 0 <= value < 1),
}
"""What a value must be: of which settings, and when it is."""

OF_ONE_ALGORITHM: dict[str, dict[str, Any]] = {
    "diverse": {"groups": 1, "diversity": 0.0},
    "sampling": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "epsilon": 0.0},
    "mbr": {"candidates": 1, "candidates_by": "sampling", "utility": "chrf"},
}
"""What only one algorithm reads, and the values that mean nothing."""

NEUTRAL: dict[str, Any] = {
    name: off for idle in OF_ONE_ALGORITHM.values() for name, off in idle.items()
}
"""The same in one: what a search is given that becomes greedy, or a plain beam."""
