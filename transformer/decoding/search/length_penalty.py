"""How good a target is: the length penalty, and the log-probability of a given target.

It does not know where a target comes from: a search, a reference or a user.
"""

from typing import Literal, overload

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.model.encoder import Memory
from transformer.model.transformer import Transformer

PenaltyForm = Literal["wu", "average"]


@overload
def length_penalty(length: int, alpha: float, form: PenaltyForm = "wu") -> float: ...


@overload
def length_penalty(length: Tensor, alpha: float, form: PenaltyForm = "wu") -> Tensor: ...


def length_penalty(length: int | Tensor, alpha: float, form: PenaltyForm = "wu") -> float | Tensor:
    """What a log-probability is divided by to give a score.

    ``wu``: ``((5 + length) / 6) ** alpha`` (Wu et al. 2016, "Google's Neural Machine Translation
    System", equation 14). ``average``: ``length ** alpha``, the mean of the tokens at 1. The length
    counts every token whose log-probability is in the sum, the end of the sentence included.
    """
    return ((5 + length) / 6) ** alpha if form == "wu" else (1.0 * length) ** alpha


@torch.inference_mode()
def score_targets(
    model: Transformer,
    memory: Memory,
    target_input: Int[Tensor, "batch target"],
    target_output: Int[Tensor, "batch target"],
) -> Float[Tensor, "batch target"]:
    """Score targets under the model, all positions at once (forced decoding).

    Args:
        model: In the mode in which it shall score; dropout is the caller's business.
        memory: The encoded source.
        target_input: Padded targets that begin with the beginning symbol.
        target_output: The same targets that end with the end symbol instead.

    Returns:
        The log-probability (natural logarithm) of each token given all before it; 0 at padding.
    """
    real = target_output != model.config.pad
    following = log_probabilities(model, memory, target_input, real)
    scores = following.new_zeros(target_output.shape)
    scores[real] = following.gather(1, target_output[real][:, None]).squeeze(1)
    return scores


@torch.inference_mode()
def log_probabilities(
    model: Transformer,
    memory: Memory,
    target_input: Int[Tensor, "batch target"],
    real: Bool[Tensor, "batch target"],
) -> Float[Tensor, "tokens vocab"]:
    """What may follow each ``real`` position of the targets, in float32.

    Padding is not projected: its logits would take as much memory as those of tokens.
    """
    hidden = model.decode(target_input, model.start(memory))
    return model.logits(hidden[real]).float().log_softmax(-1)
