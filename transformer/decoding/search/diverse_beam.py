"""Diverse beam search: groups of beams, each penalised for tokens that earlier groups just chose.

It does not know the model; within a group it is beam search (beam.py). Source: Vijayakumar et al.
2016, "Diverse Beam Search: Decoding Diverse Solutions from Neural Sequence Models", with Hamming
diversity (section 4.2).
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.decoding.search import beam
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.interface import Hypothesis, StepFunction, check_no_nan, constrain

Group = tuple[beam.Live, beam.Finished]


def diverse_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses a sentence of all groups, the best first.

    Arguments and errors are those of ``beam_search``.
    """
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    groups = [beam.start(limits, config.beam_size // config.groups) for _ in range(config.groups)]
    while True:
        tokens = torch.cat([live.tokens for live, _ in groups], dim=1)
        log_probabilities = step(tokens[:, :, -1])
        constrain(log_probabilities, tokens, groups[0][0].limits, config)
        check_no_nan(log_probabilities, tokens.size(2) - 1)
        groups, parents = _advance(groups, log_probabilities, config)
        over = torch.stack([beam.done(*group, _group_config(config)) for group in groups]).all(0)
        if over.any():
            for row in over.nonzero().squeeze(1).tolist():
                found[groups[0][0].sentences[row]] = _merged(groups, row, config)
            alive = (~over).nonzero().squeeze(1)
            if not len(alive):
                return found
            groups = [(live.select(alive), finished.select(alive)) for live, finished in groups]
            parents = parents[alive]
            step.keep(alive)
        step.reorder(parents)


def _group_config(config: SearchConfig) -> SearchConfig:
    """The beam search of one group.

    Its n-best list is the whole group: only the end shows which groups have the best hypotheses.
    """
    width = config.beam_size // config.groups
    return replace(config, algorithm="beam", beam_size=width, nbest=width, groups=1, diversity=0.0)


def _advance(
    groups: list[Group], log_probabilities: Float[Tensor, "batch beam vocab"], config: SearchConfig
) -> tuple[list[Group], Int[Tensor, "batch beam"]]:
    """One step of every group in turn; return the parent of each hypothesis."""
    settings = _group_config(config)
    width = settings.beam_size
    chosen = torch.zeros_like(log_probabilities[:, 0])
    advanced, parents = [], []
    owned = log_probabilities.split(width, dim=1)
    for number, ((live, finished), own) in enumerate(zip(groups, owned, strict=True)):
        loss = config.diversity * chosen
        ranked = beam.expand(live, own - loss[:, None])
        # The loss ranks the candidates, but is not in their log-probability.
        total = ranked.log_probabilities + loss.gather(1, ranked.tokens)
        candidates = replace(ranked, log_probabilities=total)
        finished = beam.finish(live, finished, candidates, settings)
        live, group_parents = beam.proceed(live, candidates)
        newest = candidates.tokens[:, :width]
        chosen = chosen.scatter_add(1, newest, torch.ones_like(newest, dtype=chosen.dtype))
        advanced.append((live, finished))
        parents.append(group_parents + number * width)
    return advanced, torch.cat(parents, dim=1)


def _merged(groups: list[Group], row: int, config: SearchConfig) -> list[Hypothesis]:
    """The best hypotheses of all groups, without duplicates."""
    width = config.beam_size // config.groups
    every = [h for _, finished in groups for h in beam.hypotheses(finished, row, width)]
    distinct = {h.tokens: h for h in every}
    return sorted(distinct.values(), key=lambda h: -h.score)[: config.nbest]
