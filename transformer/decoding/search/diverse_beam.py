"""Diverse beam search: groups of beams, each kept from saying what those before it just said.

It does not know the model; within a group it is beam search (beam.py). Source: Vijayakumar et al.
2016, "Diverse Beam Search: Decoding Diverse Solutions from Neural Sequence Models", with Hamming
diversity (section 4.2).
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.decoding.search.beam import (
    Candidates,
    Finished,
    Live,
    done,
    expand,
    finish,
    hypotheses,
    proceed,
    start,
)
from transformer.decoding.search.interface import (
    Hypothesis,
    SearchConfig,
    StepFunction,
    check_no_nan,
    constrain,
)

Group = tuple[Live, Finished]


def diverse_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses a sentence of all groups, the best first.

    Args:
        step: Gives log-probabilities; it starts before the first token.
        limits: The most pieces of each sentence, on the device of the step.
        config: How many groups, how wide, and how different.

    Raises:
        NotANumber: The step gave NaN.
    """
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    if not found:
        return found
    groups = [start(limits, config.beam_size // config.groups) for _ in range(config.groups)]
    while True:
        tokens = torch.cat([live.tokens for live, _ in groups], dim=1)
        log_probabilities = step(tokens[:, :, -1])
        constrain(log_probabilities, tokens, groups[0][0].limits, config)
        check_no_nan(log_probabilities, tokens.size(2) - 1)
        groups, parents = _advance(groups, log_probabilities, config)
        over = torch.stack([done(*group, _of_group(config)) for group in groups]).all(0)
        if over.any():
            for row in over.nonzero().squeeze(1).tolist():
                found[groups[0][0].positions[row]] = _merged(groups, row, config)
            alive = (~over).nonzero().squeeze(1)
            if not len(alive):
                return found
            groups = [(live.select(alive), finished.select(alive)) for live, finished in groups]
            parents = parents[alive]
            step.keep(alive)
        step.reorder(parents)


def _of_group(config: SearchConfig) -> SearchConfig:
    """The beam search of one group, which goes on until no other hypothesis can be among its best.

    All of them may be wanted: which groups have the best is known at the end.
    """
    width = config.beam_size // config.groups
    return replace(config, algorithm="beam", beam_size=width, nbest=width, groups=1, diversity=0.0)


def _advance(
    groups: list[Group], log_probabilities: Float[Tensor, "batch beam vocab"], config: SearchConfig
) -> tuple[list[Group], Int[Tensor, "batch beam"]]:
    """One step of every group in turn; return whose continuation each hypothesis is."""
    settings = _of_group(config)
    width = settings.beam_size
    said = torch.zeros_like(log_probabilities[:, 0])
    advanced, parents = [], []
    owned = log_probabilities.split(width, dim=1)
    for number, ((live, finished), own) in enumerate(zip(groups, owned, strict=True)):
        candidates = _expand_apart(live, own, config.diversity * said)
        finished = finish(live, finished, candidates, settings)
        live, of_live = proceed(live, candidates)
        newest = candidates.tokens[:, :width]
        said = said.scatter_add(1, newest, torch.ones_like(newest, dtype=said.dtype))
        advanced.append((live, finished))
        parents.append(of_live + number * width)
    return advanced, torch.cat(parents, dim=1)


def _expand_apart(
    live: Live,
    log_probabilities: Float[Tensor, "batch beam vocab"],
    loss: Float[Tensor, "batch vocab"],
) -> Candidates:
    """Rank by log-probability less the loss of each token; the loss itself is not kept."""
    ranked = expand(live, log_probabilities - loss[:, None])
    total = ranked.log_probabilities + loss.gather(1, ranked.tokens)
    return replace(ranked, log_probabilities=total)


def _merged(groups: list[Group], row: int, config: SearchConfig) -> list[Hypothesis]:
    """The best of all groups, each once."""
    width = config.beam_size // config.groups
    every = [h for _, finished in groups for h in hypotheses(finished, row, width)]
    unlike = {h.tokens: h for h in every}
    return sorted(unlike.values(), key=lambda h: -h.score)[: config.nbest]
