"""Greedy search: always the most probable next token.

It does not know the model; it is beam search of width one, and a test holds the two equal.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.data.tokenization.tokenizer import BOS, EOS
from transformer.decoding.search.interface import (
    Hypothesis,
    SearchConfig,
    StepFunction,
    check_no_nan,
    constrain,
)


def greedy_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return one hypothesis a sentence, in the order of the sentences.

    Args:
        step: Gives log-probabilities; it starts before the first token.
        limits: The most pieces of each sentence, on the device of the step.
        config: What may follow, and the length penalty.

    Raises:
        NotANumber: The step gave NaN.
    """
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    indices = list(range(len(limits)))
    tokens = limits.new_full((len(limits), 1), BOS)
    totals = torch.zeros(len(limits), device=limits.device)
    while indices:
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
                found[indices[row]].append(Hypothesis(tuple(sequence), total / penalty, total))
            alive = (~ended).nonzero().squeeze(1)
            indices = [indices[row] for row in alive.tolist()]
            tokens, chosen, totals, limits = (
                part[alive] for part in (tokens, chosen, totals, limits)
            )
            if indices:
                step.keep(alive)
        tokens = torch.cat((tokens, chosen), dim=1)
    return found
