"""Dropout on a CPU: what is dropped, how much, and what the rest becomes."""

import pytest
import torch

from transformer.model.layers.dropout import Dropout, TokenDropout, random_bytes

COUNT = 200_000


@pytest.mark.parametrize("probability", [0.01, 0.3, 0.999])
def test_the_fraction_dropped_and_the_exact_expectation(probability: float) -> None:
    """Over the 256 equally likely bytes the outputs average to the input."""
    dropped = min(round(probability * 256), 255)
    torch.manual_seed(1)
    outputs = Dropout(probability)(torch.ones(COUNT, dtype=torch.float64))
    kept = outputs.max().item()
    assert kept * (256 - dropped) / 256 == pytest.approx(1, abs=1e-12)
    assert set(outputs.unique().tolist()) == {0.0, kept}
    # Rounded to 1/256 below 1, and five standard deviations of the draw.
    fraction, deviation = (outputs == 0).double().mean().item(), (probability / COUNT) ** 0.5
    assert abs(fraction - probability) < 1 / 256 + 5 * deviation * (1 - probability) ** 0.5


def test_every_byte_is_as_likely_as_any_other() -> None:
    torch.manual_seed(1)
    counts = torch.bincount(random_bytes(256 * 2000).int(), minlength=256)
    chi_square = ((counts - 2000) ** 2 / 2000).sum().item()
    # 255 degrees of freedom: mean 255, standard deviation 22.6.
    assert 255 - 5 * 22.6 < chi_square < 255 + 5 * 22.6
    assert [random_bytes(count).shape for count in (0, 1, 7, 8, 9)] == [
        (0,),
        (1,),
        (7,),
        (8,),
        (9,),
    ]
    # Neighbors are dropped independently.
    torch.manual_seed(1)
    dropped = (Dropout(0.5)(torch.ones(COUNT)) == 0).double() - 0.5
    for distance in (1, 2, 7, 8, 64):
        correlation = 4 * (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(correlation) < 5 / COUNT**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_is_zero_exactly_where_dropped(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    hidden = torch.ones(5, 3, 40, dtype=dtype, requires_grad=True)
    output = Dropout(0.3)(hidden)
    output.sum().backward()
    assert output.dtype == dtype
    assert 0 < (output == 0).sum() < output.numel()
    # The input is one, so that output and gradient are both the scaled mask.
    assert torch.equal(hidden.grad, output.detach())  # type: ignore[arg-type]


def test_whole_tokens_are_dropped() -> None:
    probability = 0.3
    torch.manual_seed(1)
    dropped = TokenDropout(probability)(torch.ones(100, 500, 3))
    # batch length width -> batch length: all of a token, or nothing.
    assert (dropped == dropped[..., :1]).all()
    gone = (dropped[..., 0] == 0).double()
    assert (
        abs(gone.mean().item() - probability) < 5 * (probability * (1 - probability) / 5e4) ** 0.5
    )
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / (1 - probability)).item()}
    for neighbor in (gone[1:] * gone[:-1], gone[:, 1:] * gone[:, :-1]):
        assert abs(neighbor.mean().item() - probability**2) < 5 * probability / 5e4**0.5
