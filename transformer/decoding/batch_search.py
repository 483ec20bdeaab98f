"""Search a batch of segments by the algorithm that the config names.

The one place where a name becomes a search. It does not know texts.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import torch

from transformer.common.errors import InputError
from transformer.data.batching.batch import pad_source
from transformer.decoding.allocation import allocated_search
from transformer.decoding.beam import beam_search
from transformer.decoding.compiled_constraints import CompiledConstraints
from transformer.decoding.config import SearchConfig
from transformer.decoding.coverage import ranked_by_coverage
from transformer.decoding.diverse import diverse_search
from transformer.decoding.ensemble import Model, leader, step_of
from transformer.decoding.greedy import greedy_search
from transformer.decoding.sampling import sample_search
from transformer.decoding.search import Hypothesis, StepWithout
from transformer.model.heads import HeadName

SEARCHES = {"beam": beam_search, "greedy": greedy_search, "diverse": diverse_search}


def search_batch(
    model: Model,
    segments: Sequence[list[int]],
    config: SearchConfig,
    head: HeadName | None,
    constraints: CompiledConstraints | None = None,
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses a segment, the best first, in the order of the segments.

    Of ``mbr`` all candidates, as the search that found them ranks them: their texts are compared
    later.

    Args:
        model: Or an ensemble; in evaluation mode.
        segments: Source pieces.
        config: How to search.
        head: Where the coverage penalty looks (of an ensemble, in the first), as in
            ``aligning_attention``.
        constraints: What the translations are asked for.
        never: Tokens that no translation has.

    Raises:
        NotANumber: The model gave NaN.
        InputError: Phrases must occur, and the search is not beam search.
    """
    if constraints is not None and constraints.must is not None and config.algorithm != "beam":
        raise InputError(
            f"decoding.algorithm={config.algorithm} cannot look for phrases that must occur; "
            "set decoding=beam"
        )
    config = config.of_candidates
    if not config.coverage_penalty:
        return _search(model, segments, config, constraints, never)
    # All that the beam ends with compete for the places of the n-best list.
    every = replace(config, nbest=config.width, coverage_penalty=0.0)
    found = _search(model, segments, every, constraints, never)
    ranked = ranked_by_coverage(leader(model), segments, found, config.coverage_penalty, head)
    return [hypotheses[: config.nbest] for hypotheses in ranked]


def _search(
    model: Model,
    segments: Sequence[list[int]],
    config: SearchConfig,
    constraints: CompiledConstraints | None,
    never: Sequence[int],
) -> list[list[Hypothesis]]:
    device = next(model.parameters()).device
    most = most_pieces(model)
    limits = torch.tensor([min(most, config.limit(len(segment))) for segment in segments])
    limits, width = limits.to(device), config.width
    if constraints is not None:
        limits, width = constraints.limits(limits, most), constraints.width(width)
    step = step_of(model, pad_source(segments).to(device), width)
    if never:
        step = StepWithout(step, torch.tensor(never, device=device))
    if constraints is not None:
        step = constraints.step(step, limits, width)
        if constraints.must is not None:
            return allocated_search(
                step, limits, config, constraints.must, constraints.continues_word
            )
    if config.algorithm == "sampling":
        seeds = [seed_of(segment, config.seed) for segment in segments]
        return sample_search(step, limits, config, seeds)
    return SEARCHES[config.algorithm](step, limits, config)


def most_pieces(model: Model) -> int:
    """Pieces that a translation may have at most; the beginning takes one position."""
    return max(1, model.config.max_length - 1)


def seed_of(pieces: Sequence[int], seed: int) -> int:
    """A seed of the text's own: neither its batch nor its place in the input changes it."""
    digest = hashlib.sha256(repr((seed, list(pieces))).encode()).digest()
    return int.from_bytes(digest[:7], "big")
