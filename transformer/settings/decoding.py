"""Settings of a search, which a checkpoint stores; ``conf/decoding`` has presets."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from transformer.common.schema import Range, Settings, typed

SearchName = Literal["beam", "greedy", "sampling", "diverse", "mbr"]
PenaltyForm = Literal["wu", "average"]
OnFailure = Literal["mark", "next_best", "resample"]
"""What happens to a translation with a flag (``Flagging``)."""
# Checkpoints may come from strangers: the limits make every search end.
Count = Annotated[int, Range(1, 10_000)]
Length = Annotated[int, Range(0, 10_000)]
Weight = Annotated[float, Range(0, below=math.inf)]
Fraction = Annotated[float, Range(0, below=1)]


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Settings, group="decoding"):
    """Settings of a search; the default is a beam of five. A wrong value raises InputError."""

    algorithm: SearchName = "beam"
    """``diverse`` is diverse beam search, ``mbr`` minimum Bayes risk."""
    beam_size: Count = 5
    """Hypotheses that ``beam`` and ``diverse`` follow for each sentence; otherwise 1."""
    length_penalty: Annotated[float, Range(-100, 100)] = 1.0
    """The exponent alpha of `length_penalty`. Larger values favor longer hypotheses; 0 compares
    plain log-probabilities."""
    max_length_ratio: Annotated[float, Range(0, 10_000)] = 2.0
    """See ``max_length_offset``."""
    max_length_offset: Length = 10
    """A hypothesis has at most ``max_length_ratio`` times the subwords of its source plus this
    many; there it is forced to end."""
    min_length: Length = 0
    """Minimal number of subwords of a hypothesis; the upper limit comes first."""
    nbest: Count = 1
    """Hypotheses returned for each sentence, the best first. ``sampling`` draws this many samples;
    ``mbr`` returns the candidates with the highest expected utility."""
    length_penalty_form: PenaltyForm = "wu"
    """See `length_penalty`."""
    coverage_penalty: Weight = 0.0
    """The factor beta of `coverage_penalty`; 0 is off. ``mbr`` ranks without it."""
    no_repeat_ngram: Annotated[int, Range(0)] = 0
    """No n-gram of this length occurs twice in a hypothesis; 0 is off."""
    eos_threshold: Weight = 0.0
    """A sentence may end only if the log-probability of its end is more than this factor times the
    log-probability of the best subword (Hannun et al. 2019, "Sequence-to-Sequence Speech
    Recognition with Time-Depth Separable Convolutions", section 3.2.2); 0 is off."""
    stopping: Literal["exact", "full"] = "exact"
    """When a beam ends. ``exact``: no live hypothesis can still enter the n-best list. ``full``:
    also when ``beam_size`` hypotheses are finished, as in other toolkits; ``exact`` does so, too,
    if all hypotheses are hopeless (``beam.done``)."""
    groups: Count = 1
    """``diverse``: number of groups of the beam."""
    diversity: Weight = 0.0
    """``diverse``: penalty of a token for each hypothesis of earlier groups with this token."""
    temperature: Annotated[float, Range(above=0)] = 1.0
    """``sampling``: logits are divided by it first."""
    top_k: Annotated[int, Range(0)] = 0
    """``sampling``: only the k most probable tokens; 0 is off."""
    top_p: Annotated[float, Range(-math.inf, 1, above=0)] = 1.0
    """``sampling``: only the smallest set of the most probable tokens with this mass."""
    min_p: Fraction = 0.0
    """``sampling``: only tokens of at least this fraction of the best token's probability."""
    epsilon: Fraction = 0.0
    """``sampling``: only tokens of at least this probability."""
    seed: Annotated[int, Range(0)] = 1
    """``sampling``: the seed and the text determine the samples."""
    candidates: Count = 1
    """``mbr``: number of candidates, and beam size of their search."""
    candidates_by: Literal["sampling", "beam", "diverse"] = "sampling"
    """``mbr``: the search that finds the candidates, with its own settings."""
    utility: str = "chrf"
    """``mbr``: ``chrf``, ``bleu`` or ``MODULE:CALLABLE`` (`utility_named`)."""

    shortlist: str | None = None
    """A file of ``transformer shortlist``, or ``auto`` for that of the run: only the target tokens
    that it has for the sources of a batch are searched, and log-probabilities are over them. A
    batch with constraints has the whole vocabulary."""
    cuda_graphs: bool = False
    """Record each step of a search as a CUDA graph, for speed; without a CUDA GPU, the log says
    that there is none."""

    def _objections(self) -> Iterator[str]:
        return _contradictions(self)

    @property
    def width(self) -> int:
        """Number of hypotheses per sentence in a step."""
        search = self.candidate_search
        return search.nbest if search.algorithm == "sampling" else search.beam_size

    @property
    def candidate_search(self) -> "SearchConfig":
        """The search for the candidates of ``mbr``; for other algorithms, the search itself."""
        if self.algorithm != "mbr":
            return self
        changes: dict[str, Any] = {
            **SETTINGS["mbr"],
            "algorithm": self.candidates_by,
            "beam_size": 1 if self.candidates_by == "sampling" else self.candidates,
            "nbest": self.candidates,
            "coverage_penalty": 0.0,
        }
        return replace(self, **changes)

    def penalty(self, length: Any) -> Any:
        """The length penalty of this many tokens, the end of the sentence included."""
        return length_penalty(length, self.length_penalty, self.length_penalty_form)

    def limit(self, source_length: int) -> int:
        """Maximal subwords of a translation of ``source_length`` subwords; at least one."""
        return max(1, int(self.max_length_ratio * source_length + self.max_length_offset))


def length_penalty(length: Any, alpha: float, form: PenaltyForm = "wu") -> Any:
    """Compute the divisor of a log-probability: a number, or a tensor if the length is a tensor.

    ``wu``: ``((5 + length) / 6) ** alpha`` (Wu et al. 2016, "Google's Neural Machine Translation
    System", equation 14). ``average``: ``length ** alpha``, the mean of the tokens at 1. The length
    counts the subwords and the end of the sentence. As in transformers, it counts the tags that a
    text begins with (``Tags.given``), which add 0 to the sum, but not the prompt of a sound.
    """
    return ((5 + length) / 6) ** alpha if form == "wu" else (1.0 * length) ** alpha


_KEYS_OF_ONE_ALGORITHM = {
    "diverse": ("groups", "diversity"),
    "sampling": ("temperature", "top_k", "top_p", "min_p", "epsilon"),
    "mbr": ("candidates", "candidates_by", "utility"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    owner: {name: getattr(SearchConfig, name) for name in names}
    for owner, names in _KEYS_OF_ONE_ALGORITHM.items()
}
"""Settings of a single algorithm, with the values that have no effect: their defaults."""

NEUTRAL: dict[str, Any] = {
    name: value for settings in SETTINGS.values() for name, value in settings.items()
}
"""The values of all `SETTINGS` that have no effect."""


def _contradictions(config: SearchConfig) -> Iterator[str]:
    mbr = config.algorithm == "mbr"
    search = config.candidates_by if mbr else config.algorithm
    key = "candidates" if mbr else "beam_size"
    width = getattr(config, key)
    if mbr and width == 1:
        yield "decoding.candidates=1 leaves nothing to compare; set decoding=mbr, or a number"
    if config.shortlist is not None:
        yield from _shortlist_contradictions(config, search)
    if config.algorithm != "sampling" and config.nbest > width:
        remedy = f"decoding.{key}={config.nbest}"
        if config.algorithm == "greedy":
            remedy = f"decoding=beam {remedy}"
        yield (
            f"decoding.nbest={config.nbest} is more than decoding.{key}={width} can find; set "
            f"{remedy}"
        )
    if search == "diverse" and width % config.groups:
        yield f"decoding.{key}={width} is no multiple of decoding.groups={config.groups}"
    unused = {
        owner: settings
        for owner, settings in SETTINGS.items()
        if owner not in (config.algorithm, search)
    }
    if search in ("greedy", "sampling"):
        unused["beam"] = {"beam_size": 1}
    for owner, neutral in unused.items():
        for name, value in neutral.items():
            if getattr(config, name) != value:
                yield (
                    f"decoding.{name}={getattr(config, name)} has no effect with "
                    f"decoding.algorithm={config.algorithm}; set decoding={owner}, or "
                    f"decoding.{name}={value}"
                )


def _shortlist_contradictions(config: SearchConfig, search: SearchName) -> Iterator[str]:
    if search == "sampling":
        yield "decoding.shortlist has no effect with sampling; set decoding.shortlist=null"
    if config.cuda_graphs:
        yield (
            "decoding.cuda_graphs=true needs the same tokens in each batch, which "
            "decoding.shortlist does not give; set decoding.shortlist=null, or "
            "decoding.cuda_graphs=false"
        )


def changed_search(
    trained: SearchConfig, decoding: SearchConfig | Mapping[str, Any]
) -> SearchConfig:
    """The search of a run with changes by key, or a whole search in its place.

    ``beam_size`` alone makes a beam of a greedy search. Raises InputError for a wrong value.
    """
    if isinstance(decoding, SearchConfig):
        return decoding
    values = {**asdict(trained), **decoding}
    if "beam_size" in decoding and "algorithm" not in decoding and trained.algorithm == "greedy":
        values["algorithm"] = "beam"
    return typed(SearchConfig, values, "decoding")
