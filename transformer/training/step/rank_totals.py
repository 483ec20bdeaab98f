"""Communication between ranks in one update: gradients, token counts, losses, signals.

It does not know the model.
"""

import torch
import torch.distributed as dist

from transformer.common.processes import SIGNALS
from transformer.training.optimization.gradient_accumulation import Totals
from transformer.training.optimization.gradient_buckets import GradientBuckets


def sum_over_ranks(
    totals: Totals, buckets: GradientBuckets | None, signal: int | None, device: torch.device
) -> Totals:
    """Sum gradients and totals over the ranks, and collect the signals to stop.

    Args:
        totals: Of this rank.
        buckets: The gradients; None if the ranks have summed them already.
        signal: That this rank has received, if any.
        device: Of the sums.

    Returns:
        Totals whose ``tokens`` are a 0-d float64, and ``signals`` one count for each of SIGNALS.
    """
    has = [] if buckets is None else buckets.finish()
    counts = [totals.tokens, *(signal == one for one in SIGNALS), *has]
    sums = dict(sorted(totals.sums.items()))
    exact = torch.tensor(counts, dtype=torch.float64).to(device, non_blocking=True)
    flat = torch.cat([exact, *(value.double().flatten() for value in sums.values())])
    dist.all_reduce(flat)
    sizes = [1, len(SIGNALS), len(has), *(value.numel() for value in sums.values())]
    tokens, signals, ranks, *parts = flat.split(sizes)
    if buckets is not None and not all(has):
        # After layer drop this rank reads whether another has the gradient.
        buckets.drop(ranks.tolist())
    named = zip(sums.items(), parts, strict=True)
    summed = {name: part.view_as(value) for (name, value), part in named}
    return Totals(tokens.squeeze(), summed, signals)
