"""When buckets of gradients are sent, and what comes back; another rank has the same gradient."""

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from transformer.training.optimization import gradient_buckets
from transformer.training.optimization.gradient_buckets import GradientBuckets

INPUT = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """What has been sent; each weight is larger than a bucket."""
    buckets: list[Tensor] = []

    def all_reduce(flat: Tensor, async_op: bool) -> Mock:
        assert async_op
        buckets.append(flat.clone())
        return Mock(wait=lambda: flat.mul_(2))

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    monkeypatch.setattr(gradient_buckets, "_BUCKET_WEIGHTS", 3)
    yield buckets


def three_layers() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3)))


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [p.grad for p in model.parameters()]


def expected(model: nn.Module, factor: float) -> list[Tensor]:
    """Of one backward pass, times the factor."""
    return [factor * g for g in torch.autograd.grad(model(INPUT).sum(), list(model.parameters()))]


def test_buckets_leave_in_the_last_backward_pass(sent: list[Tensor]) -> None:
    model = three_layers()
    whole = expected(model, 1.0)
    buckets = GradientBuckets(model.parameters())
    model(INPUT).sum().backward()
    assert not sent
    seen: list[int] = []
    with buckets.sending():
        hidden = model[0](INPUT)
        # Before the gradient of the first layer, those of the other two are complete.
        hidden.register_hook(lambda gradient: seen.append(len(sent)))
        model[2](model[1](hidden)).sum().backward()
    assert (seen, len(sent)) == ([2], 3)
    torch.testing.assert_close(sent, [2 * g.flatten() for g in reversed(whole)])
    assert buckets.finish() == [True] * 3
    torch.testing.assert_close(gradients(model), [4 * g for g in whole])
    # The next update begins anew.
    model.zero_grad()
    model(INPUT).sum().backward()
    assert len(sent) == 3
    with buckets.sending():
        pass
    buckets.finish()
    torch.testing.assert_close(gradients(model), [2 * g for g in whole])


def test_a_repeated_part_sends_only_the_rest(sent: list[Tensor]) -> None:
    model = three_layers()
    whole = expected(model, 2.0)
    buckets = GradientBuckets(model.parameters())

    def no_memory(gradient: Tensor) -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError), buckets.sending():
        hidden = model[0](INPUT)
        hidden.register_hook(no_memory)
        model[2](model[1](hidden)).sum().backward()
    assert len(sent) == 2
    model.zero_grad()
    model(INPUT[:1]).sum().backward()
    assert len(sent) == 2
    with buckets.sending():
        model(INPUT[1:]).sum().backward()
    assert len(sent) == 3
    buckets.finish()
    torch.testing.assert_close(gradients(model), whole)


def test_a_gradient_that_no_rank_has_stays_none(sent: list[Tensor]) -> None:
    model = three_layers()
    buckets = GradientBuckets(model.parameters())
    with buckets.sending():
        model[2](INPUT).sum().backward()
        assert len(sent) == 1
    assert len(sent) == 3
    # The last parameters come first.
    assert buckets.finish() == [True, False, False]
    buckets.drop([2.0, 1.0, 0.0])
    first, second, third = gradients(model)
    assert first is None
    assert second is not None and not second.any()
    assert third is not None and third.any()
