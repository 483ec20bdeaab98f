"""How near two computations of the same thing must come, one tolerance a dtype."""

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Fail unless both agree within the tolerance of their dtype."""
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
