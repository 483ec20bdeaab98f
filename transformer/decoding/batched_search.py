"""Search many segments: in batches of similar length, by the algorithm of the config."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.common.errors import InputError, is_out_of_memory
from transformer.common.files import given_path
from transformer.data.batching.batch import pad_source
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.length_bucketing import bucket_batches
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.diverse_beam import diverse_search
from transformer.decoding.search.ensemble import Model, build_step, ensemble_members
from transformer.decoding.search.greedy import greedy_search
from transformer.decoding.search.interface import BanningStep, Hypothesis, StepFunction
from transformer.decoding.search.shortlist import Shortlist
from transformer.model.head_masks import HeadName
from transformer.settings.decoding import SearchConfig

if TYPE_CHECKING:
    from transformer.decoding.constraints.compile import CompiledConstraints, ConstraintCompiler

MIN_PARTS = 8
"""Minimal number of parts of long texts in a batch: each alone would take as long as all."""

LOWEST = torch.finfo(torch.float32).min
NO_TRANSLATION = Hypothesis((), LOWEST, LOWEST)
"""The result if the constraints leave no translation."""


@dataclass(eq=False)
class ModelSearcher:
    """The search of a model in evaluation mode; the fields are those of ``Translator``."""

    model: Model
    tokenizer: Tokenizer
    search: SearchConfig
    batch_tokens: int
    head: HeadName | None = None

    def __post_init__(self) -> None:
        if self.search.algorithm == "mbr":
            from transformer.decoding.mbr import utility_named

            utility_named(self.search.utility)

    def __call__(self, segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        """Return up to ``nbest`` hypotheses per segment, the best first; see `search_batch`."""
        found: list[list[Hypothesis]] = [[] for _ in segments]
        beam = self.search.width
        widths = [self._width(segment) for segment in segments]
        # The end of the sentence is one token more.
        tokens = [(len(s.subwords) + 1) * width for s, width in zip(segments, widths, strict=True)]
        parts = [n for n, segment in zip(tokens, segments, strict=True) if segment.is_part]
        budget = max(self.batch_tokens, MIN_PARTS * max(parts, default=0))
        for wider in (False, True):
            alike = [index for index, width in enumerate(widths) if (width > beam) is wider]
            for batch in bucket_batches([tokens[index] for index in alike], budget):
                results = self._search_in_memory([segments[alike[index]] for index in batch])
                for index, result in zip(batch, results, strict=True):
                    found[alike[index]] = result
        return found

    def _width(self, segment: Segment) -> int:
        """Number of hypotheses per sentence; more if there are required phrases."""
        beam = self.search.width
        required = segment.constraints and segment.constraints.must
        return self._compiler.width(required, beam) if required else beam

    @cached_property
    def _compiler(self) -> "ConstraintCompiler":
        from transformer.decoding.constraints.compile import ConstraintCompiler

        return ConstraintCompiler(self.tokenizer)

    @cached_property
    def _shortlist(self) -> Shortlist | None:
        path = self.search.shortlist
        return None if path is None else Shortlist.load(given_path(path), self.tokenizer)

    def _search_in_memory(self, segments: list[Segment]) -> list[list[Hypothesis]]:
        """Search; if memory is too small, search the halves: only a shortlist is of a batch."""
        try:
            return self._search_batch(segments)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(segments) == 1:
                raise InputError(
                    f"the device runs out of memory with one sentence of "
                    f"{len(segments[0].subwords)} tokens; cut it in two, lower decoding.beam_size, "
                    "nbest or candidates, or take device=cpu"
                ) from error
        # The traceback, and the memory that it held, is gone here.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        middle = (len(segments) + 1) // 2
        halves = segments[:middle], segments[middle:]
        return [found for half in halves for found in self._search_in_memory(half)]

    def _search_batch(self, segments: list[Segment]) -> list[list[Hypothesis]]:
        subwords = [segment.subwords for segment in segments]
        constraints = [segment.constraints for segment in segments]
        given = [segment.given for segment in segments]
        compiled = None
        if any(constraints) or any(given):
            device, longest = next(self.model.parameters()).device, max_subwords(self.model)
            compiled = self._compiler.compile(constraints, longest, device, given)
        banned = self.tokenizer.never_written
        # What constraints ask for may be any token.
        tokens = self._shortlist.tokens(subwords) if self._shortlist and not compiled else None
        found = search_batch(self.model, subwords, self.search, self.head, compiled, banned, tokens)
        found = [hypotheses or [NO_TRANSLATION] for hypotheses in found]
        if self.search.algorithm != "mbr":
            return found
        from transformer.decoding.mbr import minimum_bayes_risk

        texts = [hypothesis_texts(one, self.tokenizer) for one in found]
        return [minimum_bayes_risk(*one, self.search) for one in zip(found, texts, strict=True)]


def hypothesis_texts(hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer) -> list[str]:
    """Detokenize; bytes can spell a line end, which becomes a space."""
    texts = tokenizer.decode_target([hypothesis.tokens for hypothesis in hypotheses])
    return [text.replace("\n", " ") for text in texts]


Search = Callable[[StepFunction, Tensor, SearchConfig], list[list[Hypothesis]]]
SEARCHES: dict[str, Search] = {
    "beam": beam_search,
    "greedy": greedy_search,
    "diverse": diverse_search,
}
"""Searches that need only a step, limits and the config, by ``decoding.algorithm``."""


def search_batch(
    model: Model,
    segments: Sequence[list[int]],
    config: SearchConfig,
    head: HeadName | None,
    constraints: "CompiledConstraints | None" = None,
    banned: Sequence[int] = (),
    shortlist: Int[Tensor, " tokens"] | None = None,
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses per segment, the best first, in the segments' order.

    With ``mbr`` it returns all candidates, ranked by the search. The model is in evaluation mode.
    The coverage penalty reads ``head``, in the first model of an ensemble. No translation has a
    ``banned`` token, and none has a token outside of the ``shortlist``, if there is one.
    """
    if constraints is not None and constraints.must is not None and config.algorithm != "beam":
        raise InputError(
            f"decoding.algorithm={config.algorithm} cannot look for phrases that must occur; "
            "set decoding=beam"
        )
    config = config.candidate_search
    if not config.coverage_penalty:
        return _search(model, segments, config, constraints, banned, shortlist)
    from transformer.decoding.search.coverage_penalty import rank_by_coverage

    # The penalty ranks the whole final beam.
    whole = replace(config, nbest=config.width, coverage_penalty=0.0)
    found = _search(model, segments, whole, constraints, banned, shortlist)
    first = ensemble_members(model)[0]
    ranked = rank_by_coverage(first, segments, found, config.coverage_penalty, head)
    return [hypotheses[: config.nbest] for hypotheses in ranked]


def _search(
    model: Model,
    segments: Sequence[list[int]],
    config: SearchConfig,
    constraints: "CompiledConstraints | None",
    banned: Sequence[int],
    shortlist: Int[Tensor, " tokens"] | None,
) -> list[list[Hypothesis]]:
    device = next(model.parameters()).device
    max_length = max_subwords(model)
    limits = torch.tensor([min(max_length, config.limit(len(segment))) for segment in segments])
    limits, width = limits.to(device), config.width
    if constraints is not None:
        limits = constraints.limits(limits, max_length)
        if constraints.must is not None:
            width = int(constraints.must.widths(width).max())
    never = torch.tensor(banned, dtype=torch.long)
    if shortlist is not None:
        never, shortlist = torch.isin(shortlist, never).nonzero()[:, 0], shortlist.to(device)
    step = build_step(model, pad_source(segments).to(device), width, shortlist)
    if len(never):
        step = BanningStep(step, never.to(device))
    if constraints is not None:
        step = constraints.step(step, limits, width)
        if constraints.must is not None:
            from transformer.decoding.constraints.dynamic_beam_allocation import allocated_search

            return allocated_search(step, limits, config, constraints.must)
    if config.algorithm == "sampling":
        from transformer.decoding.search.sampling import derive_seed, sample_search

        seeds = [derive_seed(segment, config.seed) for segment in segments]
        return sample_search(step, limits, config, seeds)
    found = SEARCHES[config.algorithm](step, limits, config)
    if shortlist is None:
        return found
    ids = shortlist.tolist()
    return [[replace(h, tokens=tuple(ids[t] for t in h.tokens)) for h in row] for row in found]


def max_subwords(model: Model) -> int:
    """Maximal subwords of a translation; the beginning takes one position."""
    return max(1, model.config.max_length - 1)
