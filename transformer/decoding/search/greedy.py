"""Greedy search: always the most probable next token.

It does not know the model. It equals beam search of width one, as a test shows.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.data.tokenization.tokenizer import BOS, EOS
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.interface import Hypothesis, StepFunction, check_no_nan, constrain


def greedy_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return one hypothesis a sentence; arguments and errors are those of ``beam_search``."""
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    sentences = list(range(len(limits)))
    tokens = limits.new_full((len(limits), 1), BOS)
    totals = torch.zeros(len(limits), device=limits.device)
    while sentences:
        length = tokens.size(1) - 1
        log_probabilities = step(tokens[:, -1:])
        constrain(log_probabilities, tokens[:, None], limits, config)
        best, chosen = log_probabilities.max(dim=-1)
        check_no_nan(best, length)
        totals = totals + best.squeeze(1)
        ended = (chosen == EOS).squeeze(1)
        if ended.any():
            penalty = config.penalty(length + 1)
            rows = ended.nonzero().squeeze(1).tolist()
            subwords = tokens[ended, 1:].tolist()
            for row, sequence, total in zip(rows, subwords, totals[ended].tolist(), strict=True):
                found[sentences[row]].append(Hypothesis(tuple(sequence), total / penalty, total))
            alive = (~ended).nonzero().squeeze(1)
            sentences = [sentences[row] for row in alive.tolist()]
            tokens, chosen = tokens[alive], chosen[alive]
            totals, limits = totals[alive], limits[alive]
            if sentences:
                step.keep(alive)
        tokens = torch.cat((tokens, chosen), dim=1)
    return found
