"""Graphs of micro-batches: which are recorded, what a replay reads and adds to, and fallbacks.

The recorder of these tests computes in each replay what a graph would.
"""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_config, tiny_transformer
from tests.helpers.training.recorders import CpuRecorder
from tests.helpers.training.updates import module_settings, translation_module
from tests.parity.test_batch_shapes import padded
from tests.parity.test_compile import pairs
from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch
from transformer.data.batching.loader import Update
from transformer.settings.data import AugmentationConfig, DataConfig
from transformer.settings.run import RunConfig
from transformer.settings.training import LossConfig, TrainerConfig
from transformer.training.cuda_graphs import (
    GraphedBackward,
    graphed_backward,
    graphless_reason,
)


class Graphs:
    """A module, its backward passes with graphs, and without."""

    def __init__(self) -> None:
        self.module = translation_module(tiny_transformer().train())
        self.recorder = CpuRecorder()
        self.graphed = GraphedBackward(self.plain, self.module.model.parameters(), self.recorder)

    def plain(self, batch: Batch) -> tuple[int, dict[str, Tensor]]:
        loss, tokens, sums = self.module.micro_loss(batch)
        loss.backward()
        return tokens, sums

    def gradients(self) -> dict[str, Tensor | None]:
        named = self.module.model.named_parameters()
        return {name: None if w.grad is None else w.grad.clone() for name, w in named}


SHAPED = [padded(pairs(sentences, 9, 8), 9 - sentences, 0, 60) for sentences in (6, 7, 8)]
"""Of one shape."""


def assert_same(graphs: Graphs, batches: list[Any]) -> None:
    """An update of these micro-batches has the gradient and sums that it has without graphs."""
    found: list[Any] = []
    for backward in (graphs.graphed, graphs.plain):
        graphs.module.zero_grad()
        results = [backward(batch) for batch in batches]
        found.append((graphs.gradients(), results))
    (mine, sums), (expected, plain) = found
    assert sums == plain
    for name, gradient in expected.items():
        torch.testing.assert_close(mine[name], gradient)


def test_the_second_batch_of_a_shape_is_recorded_and_later_ones_replayed() -> None:
    graphs = Graphs()
    for batch in SHAPED:
        assert_same(graphs, [batch])
    other = padded(pairs(6, 9, 8), 0, 1, 0)
    assert_same(graphs, [other])
    recorder = graphs.recorder
    assert (recorder.warmed, recorder.recorded, recorder.replayed) == (2, 1, 2)
    assert graphs.graphed.shapes == 1


def test_micro_batches_add_up_with_and_without_graphs() -> None:
    graphs = Graphs()
    plain = SHAPED[0].plain
    for _ in range(2):
        assert_same(graphs, [*SHAPED, plain, SHAPED[1], plain, padded(plain, 0, 1, 0)])
    assert graphs.recorder.recorded == 2


def test_sums_outlive_the_next_replay() -> None:
    graphs = Graphs()
    graphs.graphed(SHAPED[0])
    _, first = graphs.graphed(SHAPED[1])
    before = first["loss"].clone()
    graphs.graphed(SHAPED[2])
    assert torch.equal(first["loss"], before)


def test_weights_without_gradient_keep_none() -> None:
    graphs = Graphs()
    graphs.module.model.encoder.requires_grad_(False)
    graphs.graphed = GraphedBackward(
        graphs.plain, graphs.module.model.parameters(), graphs.recorder
    )
    for batch in SHAPED:
        assert_same(graphs, [batch])
    assert graphs.gradients()["encoder.layers.0.feed_forward.inner.weight"] is None


def test_moved_weights_are_recorded_again() -> None:
    graphs = Graphs()
    for batch in SHAPED:
        assert_same(graphs, [batch])
    weight = graphs.module.model.projection.weight
    weight.data = weight.data.clone()
    for batch in SHAPED:
        assert_same(graphs, [batch])
    assert (graphs.recorder.warmed, graphs.recorder.recorded) == (2, 2)


def test_after_a_failure_all_is_computed_without_graphs(caplog: pytest.LogCaptureFixture) -> None:
    graphs = Graphs()
    graphs.recorder.error = RuntimeError("operation not permitted\nwhen stream is capturing")
    with caplog.at_level(logging.WARNING):
        for batch in SHAPED * 2:
            assert_same(graphs, [batch])
    (line,) = caplog.messages
    assert "recording one failed (operation not permitted)" in line
    assert graphs.recorder.warmed == 1


def test_a_shape_whose_first_batch_fails_is_computed_again_before_it_is_recorded() -> None:
    graphs = Graphs()

    def out_of_memory(batch: Any) -> tuple[int, dict[str, Tensor]]:
        raise torch.OutOfMemoryError

    graphs.graphed.backward = out_of_memory
    with pytest.raises(torch.OutOfMemoryError):
        graphs.graphed(SHAPED[0])
    graphs.graphed.backward = graphs.plain
    for batch in SHAPED:
        assert_same(graphs, [batch])
    assert (graphs.recorder.warmed, graphs.recorder.recorded) == (2, 1)


def test_an_update_that_fails_drops_all_graphs() -> None:
    graphs = Graphs()
    module: Any = graphs.module
    module.backward_of = graphs.graphed
    for batch in SHAPED:
        module.accumulate(Update.of([batch], [0]))
    assert graphs.graphed.shapes == 1

    def failing(batch: Any) -> tuple[int, dict[str, Tensor]]:
        raise ValueError("a bug")

    graphs.graphed.backward = failing
    with pytest.raises(ValueError, match="a bug"):
        module.training_step(Update.of([padded(SHAPED[0].plain, 0, 1, 0)], [0]), 0)
    assert module.backward_of == module._backward_as_it_is


CUDA = torch.device("cuda")


@pytest.mark.parametrize(
    ("changes", "device", "processes", "part"),
    [
        ({}, CUDA, 1, None),
        ({}, torch.device("cpu"), 1, "trains on cpu"),
        ({}, CUDA, 2, "several processes"),
        ({"gradient_checkpointing": True}, CUDA, 1, "gradient_checkpointing"),
        ({"model": tiny_config(layer_drop=0.2)}, CUDA, 1, "model.layer_drop=0.2"),
    ],
)
def test_what_cannot_be_recorded_has_a_reason(
    changes: dict[str, Any], device: torch.device, processes: int, part: str | None
) -> None:
    reason = graphless_reason(RunConfig(**changes), device, processes)
    assert reason == part if part is None else part in (reason or "")


def test_a_run_on_a_cpu_says_that_it_has_no_graphs(caplog: pytest.LogCaptureFixture) -> None:
    settings = module_settings(
        tiny_transformer(),
        trainer=TrainerConfig(cuda_graphs=True),
        data=DataConfig(batch_shapes=8),
    )

    def backward(batch: Any) -> tuple[int, dict[str, Tensor]]:
        return 0, {}

    made = graphed_backward(backward, settings["model"], settings["config"], torch.device("cpu"), 1)
    assert made is backward
    assert caplog.messages == [
        "trainer.cuda_graphs: no graph is used, because it trains on cpu, not on a CUDA GPU"
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer": TrainerConfig(cuda_graphs=True)}, "set data.batch_shapes=32"),
        ({"task": "tagging"}, "pads pairs of task=translation"),
        ({"loss": LossConfig(consistency="r_drop", consistency_weight=1.0)}, "consistency=none"),
        ({"augmentation": AugmentationConfig(typos=0.1)}, "augmentation=none"),
    ],
)
def test_what_has_no_few_shapes_is_refused(changes: dict[str, Any], message: str) -> None:
    shapes = 0 if "trainer" in changes else 8
    with pytest.raises(InputError, match=message):
        RunConfig(data=DataConfig(batch_shapes=shapes), **changes)
