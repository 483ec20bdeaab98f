"""Diverse beam search: each group of beams is penalized for the new tokens of earlier groups.

Each group runs beam search (beam.py). Source: Vijayakumar et al. 2016, "Diverse Beam Search:
Decoding Diverse Solutions from Neural Sequence Models", with Hamming diversity (section 4.2).
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.decoding.search import beam
from transformer.decoding.search.search import (
    Advanced,
    Finished,
    Hypothesis,
    LogProbabilities,
    Sentences,
    StepFunction,
    run_search,
)
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import EOS


@dataclass(frozen=True)
class Groups:
    """The beams of all groups."""

    beams: list[beam.Beams]

    @property
    def tokens(self) -> Int[Tensor, "batch beam length"]:
        return torch.cat([group.tokens for group in self.beams], dim=1)

    def advance(
        self, log_probabilities: LogProbabilities, sentences: Sentences, config: SearchConfig
    ) -> Advanced:
        """One step of every group in turn."""
        width = config.beam_size // config.groups
        # The n-best list is the whole group: only the end shows which have the best hypotheses.
        settings = replace(
            config, algorithm="beam", beam_size=width, nbest=width, groups=1, diversity=0.0
        )
        # batch vocab: the hypotheses of earlier groups that have this token now
        counts = torch.zeros_like(log_probabilities[:, 0])
        advanced = []
        over = []
        parents = []
        by_group = log_probabilities.split(width, dim=1)
        for number, (group, following) in enumerate(zip(self.beams, by_group, strict=True)):
            penalty = config.diversity * counts
            ranked = beam.expand(group.live, following - penalty[:, None])
            # The penalty ranks the candidates, but is not in their log-probability.
            total = ranked.log_probabilities + penalty.gather(1, ranked.tokens)
            candidates = replace(ranked, log_probabilities=total)
            finished = beam.finish(group.live, group.finished, candidates, settings)
            live, group_parents = beam.proceed(group.live, candidates)
            is_live = (live.log_probabilities > -math.inf).to(counts.dtype)
            counts = counts.scatter_add(1, live.tokens[:, :, -1], is_live)
            # In the paper a hypothesis that ends keeps its place; here another one follows, too.
            best = candidates.log_probabilities[:, :width]
            ended = (candidates.tokens[:, :width] == EOS) & (best > -math.inf)
            counts[:, EOS] += ended.sum(1)
            advanced.append(beam.Beams(live, finished))
            over.append(beam.done(live, finished, sentences.limits, settings))
            parents.append(group_parents + number * width)
        done = torch.stack(over).all(0)
        return Advanced(Groups(advanced), done, log_probabilities.amax(-1), torch.cat(parents, 1))

    def select(self, rows: Int[Tensor, " kept"]) -> "Groups":
        return Groups([group.select(rows) for group in self.beams])

    def result(self, config: SearchConfig) -> Finished:
        """The hypotheses of all groups, one group after the other."""
        parts = zip(*(vars(group.finished).values() for group in self.beams), strict=True)
        return Finished(*(torch.cat(part, dim=1) for part in parts))


def diverse_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses per sentence from all groups; see ``beam_search``."""
    sentences = Sentences(limits)
    width = config.beam_size // config.groups
    groups = Groups([beam.start(sentences, width) for _ in range(config.groups)])
    nbest = []
    for hypotheses in run_search(groups, step, sentences, config):
        # Groups may find the same hypothesis.
        distinct = {hypothesis.tokens: hypothesis for hypothesis in hypotheses}.values()
        ranked = sorted(distinct, key=lambda hypothesis: -hypothesis.score)
        nbest.append(ranked[: config.nbest])
    return nbest
