"""The length penalty: a log-probability divided by it is a score."""

from typing import Literal, overload

from torch import Tensor

PenaltyForm = Literal["wu", "average"]


@overload
def length_penalty(length: int, alpha: float, form: PenaltyForm = "wu") -> float: ...
@overload
def length_penalty(length: Tensor, alpha: float, form: PenaltyForm = "wu") -> Tensor: ...


def length_penalty(length: int | Tensor, alpha: float, form: PenaltyForm = "wu") -> float | Tensor:
    """Compute the divisor of a log-probability.

    ``wu``: ``((5 + length) / 6) ** alpha`` (Wu et al. 2016, "Google's Neural Machine Translation
    System", equation 14). ``average``: ``length ** alpha``, the mean of the tokens at 1. The length
    counts every token whose log-probability is in the sum, the end of the sentence included.
    """
    return ((5 + length) / 6) ** alpha if form == "wu" else (1.0 * length) ** alpha
