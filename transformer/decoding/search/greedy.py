"""Greedy search: always the most probable next token, as beam search of width one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.decoding.search.beam import BLOCK
from transformer.decoding.search.search import (
    Advanced,
    Finished,
    Hypothesis,
    LogProbabilities,
    Rows,
    Sentences,
    StepFunction,
    run_search,
    scored,
)
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import BOS, EOS


@dataclass(frozen=True)
class Greedy(Rows):
    """One hypothesis per sentence; its end is a token, too."""

    tokens: Int[Tensor, "batch 1 length"]
    totals: Float[Tensor, "batch 1"]

    def advance(
        self, log_probabilities: LogProbabilities, sentences: Sentences, config: SearchConfig
    ) -> Advanced:
        best, token = first_largest(log_probabilities[:, 0])
        tokens = torch.cat((self.tokens, token[..., None]), dim=2)
        return Advanced(Greedy(tokens, self.totals + best), token[:, 0] == EOS, best)

    def result(self, config: SearchConfig) -> Finished:
        subwords = self.tokens[:, :, 1:-1]
        lengths = torch.full_like(self.tokens[:, :, 0], subwords.size(2))
        return Finished(self.totals, self.totals, lengths, subwords)


def greedy_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return one hypothesis per sentence; see ``beam_search``."""
    tokens = limits.new_full((len(limits), 1, 1), BOS)
    totals = torch.zeros(tokens.shape[:2], device=limits.device)
    results = run_search(Greedy(tokens, totals), step, Sentences(limits), config)
    return [[scored(hypothesis, config) for hypothesis in hypotheses] for hypotheses in results]


def first_largest(
    values: Float[Tensor, "batch many"],
) -> tuple[Float[Tensor, "batch 1"], Int[Tensor, "batch 1"]]:
    """The largest value of each row and its first index, as ``max`` finds them.

    On a CPU, torch's ``max`` over a vocabulary takes twenty times as long as ``amax``; here it
    looks only into the first block with the largest maximum. The last block overlaps the one
    before, so that it is full.
    """
    many = values.size(1)
    if values.device.type != "cpu" or many <= BLOCK:
        return values.max(dim=1, keepdim=True)
    whole = values[:, : many // BLOCK * BLOCK].unflatten(1, (-1, BLOCK)).amax(-1)
    maxima = torch.cat((whole, values[:, -BLOCK:].amax(-1, keepdim=True)), dim=1)
    starts = torch.arange(maxima.size(1)) * BLOCK
    starts[-1] = many - BLOCK
    begin = starts[maxima.max(dim=1, keepdim=True).indices]
    best, within = values.gather(1, begin + torch.arange(BLOCK)).max(dim=1, keepdim=True)
    return best, begin + within
