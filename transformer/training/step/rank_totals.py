"""Communication between ranks in one update: gradients, token counts, losses, signals.

It does not know the model.
"""

import torch
import torch.distributed as dist

from transformer.common.processes import SIGNALS
from transformer.training.optimization.gradient_accumulation import Totals
from transformer.training.optimization.gradient_buckets import GradientBuckets
from transformer.training.step.outcome import FlatTensors


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
    signals = [signal == one for one in SIGNALS]
    counts = {"tokens": totals.tokens, "signals": signals, "gradients": has}
    on_host = {name: torch.tensor(count, dtype=torch.float64) for name, count in counts.items()}
    counted = FlatTensors(on_host)
    counted.flat = counted.flat.to(device, non_blocking=True)
    # The ranks may have met the sums in another order.
    packed = FlatTensors(*counted.unpack(), dict(sorted(totals.sums.items())))
    dist.all_reduce(packed.flat)
    summed, sums = packed.unpack()
    if buckets is not None and not all(has):
        # After layer drop this rank reads whether another has the gradient.
        buckets.drop(summed["gradients"].tolist())
    return Totals(summed["tokens"], sums, summed["signals"])
