"""The parts of an update: clipping, means over ranks, trainers that are refused."""

import pytest
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import FSDPStrategy, ModelParallelStrategy, SingleDeviceStrategy
from torch import Tensor, nn

from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.fakes import fake_trainer
from tests.helpers.training.updates import translation_module
from transformer.common.errors import InputError
from transformer.settings.training import OptimizerConfig
from transformer.training.optimization import build_optimizer
from transformer.training.update import Means, clip_mean_gradient, mean_gradient_scale


def updated(by_optimizer: bool, tokens: float | Tensor, clip: float | None) -> list[Tensor]:
    """The norm, and the weights after two updates, the second with a weight without gradient."""
    torch.manual_seed(1)
    model = nn.Linear(5, 3)
    adam = build_optimizer(OptimizerConfig("adamw", weight_decay=0.1), model)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape) * 30
    for _ in range(2):
        if by_optimizer:
            norm, adam.grad_scale = mean_gradient_scale(model, tokens, clip)  # type: ignore[attr-defined]
        else:
            norm = clip_mean_gradient(model, tokens, clip, sharded=False)
        adam.step()
        model.weight.grad, model.bias.grad = torch.randn(3, 5) * 20, None
    return [norm, *(weight.detach() for weight in model.parameters())]


@pytest.mark.parametrize("tokens", [7.0, torch.tensor(7.0, dtype=torch.float64)])
@pytest.mark.parametrize("clip", [None, 1.0, 1e4])
def test_the_optimizer_scales_as_clipping_does(tokens: float | Tensor, clip: float | None) -> None:
    scaled, clipped = updated(True, tokens, clip), updated(False, tokens, clip)
    assert scaled[0].dtype == torch.float32
    for value, expected in zip(scaled, clipped, strict=True):
        assert_close(value, expected)


@pytest.mark.parametrize(("max_norm", "factor"), [(1.0, 1 / 2.5), (3.0, 1.0), (None, 1.0)])
def test_the_mean_gradient_is_clipped_to_the_norm(max_norm: float | None, factor: float) -> None:
    model = nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[6.0, 8.0]])
    norm = clip_mean_gradient(model, 4.0, max_norm, sharded=False)
    assert norm.item() == pytest.approx(10 / 4)
    assert_close(model.weight.grad, factor * torch.tensor([[1.5, 2.0]]))


def test_ranks_with_unequal_parts_find_the_mean_of_all_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gather(gathered: list[object], part: object) -> None:
        assert part == {"val/loss": (48.375, 10)} and len(gathered) == 3
        # The last rank has no predictions.
        gathered[:] = [part, {"val/loss": (3.5, 3)}, {}]

    means = Means()
    for has_ranks, mean in ((False, 48.375 / 10), (True, 51.875 / 13)):
        means.add("val/loss", torch.tensor(8.25), 3)
        means.add("val/loss", torch.tensor(40.125), 7)
        if has_ranks:
            monkeypatch.setattr(dist, "is_initialized", lambda: True)
            monkeypatch.setattr(dist, "get_world_size", lambda: 3)
            monkeypatch.setattr(dist, "all_gather_object", gather)
        assert means.over_all_ranks() == {"val/loss": pytest.approx(mean, abs=1e-12)}


def test_a_trainer_that_computes_another_gradient_is_refused() -> None:
    module = translation_module()
    settings = {"strategy": SingleDeviceStrategy("cpu"), "datamodule": None}
    module.trainer = fake_trainer(**settings)
    module.setup("fit")
    for changes, name in (
        ({"strategy": FSDPStrategy()}, "FSDPStrategy"),
        ({"strategy": ModelParallelStrategy()}, "ModelParallelStrategy"),
        ({"precision": "16-mixed"}, "precision=16-mixed"),
    ):
        module.trainer = fake_trainer(**(settings | changes))
        with pytest.raises(InputError, match=name):
            module.setup("fit")
