"""How good a target is: the length penalty, and the log-probability of a given target.

It does not know where a target comes from: a search, a reference or a user.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.model.transformer import Transformer


def length_penalty(length: int, alpha: float) -> float:
    """``((5 + length) / 6) ** alpha``: what a log-probability is divided by to give a score.

    Wu et al. 2016, "Google's Neural Machine Translation System", equation 14. The length counts
    every token whose log-probability is in the sum, the end of the sentence included.
    """
    return ((5 + length) / 6) ** alpha


@dataclass(frozen=True)
class TargetScores:
    """Log-probabilities (natural logarithm) of given targets.

    Attributes:
        tokens: Of each token given all before it; 0 at padding.
        sentences: Their sum over each sentence.
    """

    tokens: Float[Tensor, "batch target"]
    sentences: Float[Tensor, " batch"]


@torch.inference_mode()
def score_targets(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    target_input: Int[Tensor, "batch target"],
    target_output: Int[Tensor, "batch target"],
) -> TargetScores:
    """Score targets under the model, all positions at once (forced decoding).

    Args:
        model: In the mode in which it shall score; dropout is the caller's business.
        source: Padded source tokens.
        target_input: Padded targets that begin with the beginning symbol.
        target_output: The same targets that end with the end symbol instead.
    """
    hidden = model(source, target_input)
    log_probabilities = model.logits(hidden).float().log_softmax(dim=-1)
    # batch target vocab -> batch target
    chosen = log_probabilities.gather(-1, target_output[..., None]).squeeze(-1)
    chosen = chosen.masked_fill(target_output == model.config.pad, 0.0)
    return TargetScores(chosen, chosen.sum(dim=-1))
