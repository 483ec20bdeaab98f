"""Updates with CUDA graphs learn what updates without them learn, dropout included."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.recorders import CpuRecorder
from tests.helpers.training.updates import loss_config, translation_module
from tests.parity.test_batch_shapes import padded
from tests.parity.test_compile import pairs
from transformer.common.cuda_graphs import GpuRecorder, Recorder
from transformer.data.batching.batch import Batch
from transformer.settings.training import OptimizerConfig
from transformer.training.cuda_graphs import Backward, GraphedBackward
from transformer.training.layer_wrappers import compile_layers
from transformer.training.optimization import build_optimizer
from transformer.training.update import seed_for

SHAPES = [padded(pairs(sentences, 9, 8), 9 - sentences, 0, 60) for sentences in (6, 7, 8)]
OTHERS = [padded(pairs(5, 20, 17), rows, 3, 40) for rows in (0, 0, 0)]
ORDER = [*SHAPES[:2], *OTHERS[:2], SHAPES[2], pairs(4, 5, 6), OTHERS[2], SHAPES[0]]
"""Two shapes and a batch without one; the shapes take turns in the memory that they share."""


def learned(
    device: str,
    recorder: Recorder | None,
    *,
    compiled: bool = False,
    narrow: bool = False,
    resumed_at: int = -1,
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The losses and norms of updates of two micro-batches, and the weights after the last.

    Before the update ``resumed_at`` all graphs are forgotten, as by a process that has ended.
    """
    model = tiny_transformer(dropout=0.1).to(device).train()
    module = translation_module(model, clip=0.5, loss=loss_config(chunk=512))
    if compiled:
        compile_layers(model)
        module.compiled = True
    # Adam would divide gradients that are 0 but for rounding by their own size.
    settings = OptimizerConfig("adam", 1e-3, (0.9, 0.98), 1e-3, 0.0)
    adam: Any = build_optimizer(settings, model)

    def backward(batch: Batch) -> tuple[int, dict[str, Tensor]]:
        loss, tokens, sums = module.micro_loss(batch)
        loss.backward()
        return tokens, sums

    def graphed_anew() -> Backward:
        if recorder is None:
            return backward
        return GraphedBackward(backward, model.parameters(), recorder)

    graphed = graphed_anew()
    numbers = []
    for number in range(2 * len(ORDER)):
        if number == resumed_at:
            graphed = graphed_anew()
        # As in a run, autocast is entered once an update.
        with torch.autocast(device, torch.bfloat16, enabled=narrow):
            totals = 0
            for part in range(2):
                seed_for(1, number, part)
                batch = ORDER[(number + part) % len(ORDER)].to(device)
                tokens, sums = graphed(batch)
                totals += tokens
                numbers.append(sums["loss"])
            numbers.append(module.normalize(float(totals), adam))
            adam.step()
            model.zero_grad()
    return numbers, {name: weight.detach() for name, weight in model.named_parameters()}


def assert_alike(device: str, recorder: Recorder, *, compiled: bool, narrow: bool) -> None:
    kind: dict[str, bool] = {"compiled": compiled, "narrow": narrow}
    numbers, weights = learned(device, recorder, **kind)
    expected_numbers, expected = learned(device, None, **kind)
    for number, value in zip(numbers, expected_numbers, strict=True):
        torch.testing.assert_close(number, value, rtol=1e-5, atol=1e-5)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("narrow", [False, True])
def test_replayed_updates_are_plain_ones(narrow: bool) -> None:
    recorder = CpuRecorder()
    assert_alike("cpu", recorder, compiled=False, narrow=narrow)
    assert recorder.recorded == 2 and recorder.replayed > 20


def assert_resumed(device: str, recorder: Recorder, *, narrow: bool) -> None:
    """The same bits, wherever the run was stopped."""
    numbers, weights = learned(device, recorder, narrow=narrow)
    for stopped in (1, 3, 9):
        again, resumed = learned(device, recorder, narrow=narrow, resumed_at=stopped)
        assert all(map(torch.equal, again, numbers))
        assert all(torch.equal(resumed[name], value) for name, value in weights.items())


@pytest.mark.parametrize("narrow", [False, True])
def test_a_resumed_run_has_the_same_bits(narrow: bool) -> None:
    assert_resumed("cpu", CpuRecorder(), narrow=narrow)


@pytest.mark.gpu
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("narrow", [False, True])
def test_a_resumed_run_has_the_same_bits_on_a_gpu(narrow: bool) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert_resumed("cuda", GpuRecorder(torch.device("cuda")), narrow=narrow)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_graphs_of_a_gpu_are_plain_updates(compiled: bool, narrow: bool) -> None:
    torch.compiler.reset()
    recorder = GpuRecorder(torch.device("cuda"))
    assert_alike("cuda", recorder, compiled=compiled, narrow=narrow)


@pytest.mark.gpu
@pytest.mark.usefixtures("unchecked")
def test_a_pass_that_waits_for_the_gpu_is_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_transformer(dropout=0.1).to("cuda").train()
    module = translation_module(model)

    def waiting(batch: Batch) -> tuple[int, dict[str, Tensor]]:
        loss, tokens, sums = module.micro_loss(batch)
        loss.item()
        loss.backward()
        return tokens, sums

    graphed = GraphedBackward(waiting, model.parameters(), GpuRecorder(torch.device("cuda")))
    for number, batch in enumerate(SHAPES * 2):
        found = []
        for backward in (graphed, waiting):
            model.zero_grad()
            seed_for(1, number)
            backward(batch.to("cuda"))
            found.append([weight.grad for weight in model.parameters()])
        torch.testing.assert_close(found[0], found[1])
    assert "recording one failed" in caplog.text
