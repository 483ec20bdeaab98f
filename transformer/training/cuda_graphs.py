"""CUDA graphs of micro-batches: the host starts a forward and backward pass by one call.

``torch.cuda.graph`` records the kernels of a pass over a batch of some shape, and replays them for
other batches of this shape (``data.batch_shapes``). The optimizer is not recorded: its few fused
kernels are started while the device replays. Nothing here knows the task.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer.common.cuda_graphs import GpuRecorder, Recorder, failure
from transformer.data.batching.batch import BatchShape, ShapedBatch
from transformer.settings.run import RunConfig

logger = logging.getLogger(__name__)

Backward = Callable[[Any], tuple[int, dict[str, Tensor]]]
"""Adds the gradient of a micro-batch; returns its predictions, and sums to log."""


@dataclass(frozen=True)
class _Recorded:
    batch: ShapedBatch
    """What each replay reads."""
    sums: dict[str, Tensor]
    """What each replay writes."""
    replay: Callable[[], None]


class GraphedBackward:
    """A ``Backward`` that records each shape when it meets it again, and then replays it.

    The first batch of a shape is computed without a graph. The gradients of all graphs are the same
    tensors, to which a replay adds. Random numbers are drawn anew in each replay, from the seed of
    the default generator, as without a graph; hooks of Python run at the recording only. Batches
    of other shapes are computed as they are. If a recording fails, all are from then on, and a line
    of the log says why.
    """

    def __init__(
        self, backward: Backward, parameters: Iterable[nn.Parameter], recorder: Recorder
    ) -> None:
        self.backward = backward
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._recorder = recorder
        self._works = True
        self._seen: set[BatchShape] = set()
        self._graphs: dict[BatchShape, _Recorded] = {}
        self._gradients: dict[nn.Parameter, Tensor] = {}
        self._addresses: list[int] = []

    @property
    def shapes(self) -> int:
        """Shapes that have been recorded."""
        return len(self._graphs)

    def __call__(self, batch: Any) -> tuple[int, dict[str, Tensor]]:
        """Add the gradient of a micro-batch."""
        if not self._works or not isinstance(batch, ShapedBatch):
            return self.backward(batch)
        self._forget_moved_weights()
        if batch.shape not in self._seen:
            result = self._recorder.warm_up(partial(self.backward, batch))
            # After an error, such as too little memory, a batch is the first of its shape again.
            self._seen.add(batch.shape)
            # Weights that the loss does not reach have no gradient.
            for parameter in self._parameters:
                if parameter.grad is not None and parameter not in self._gradients:
                    self._gradients[parameter] = torch.zeros_like(parameter)
            return result
        self._attach_gradients()
        recorded = self._graphs.get(batch.shape)
        if recorded is None:
            recorded = self._record(batch)
            if recorded is None:
                return self.backward(batch)
        recorded.batch.copy_(batch)
        recorded.replay()
        # The next replay overwrites them.
        return batch.target_tokens, {name: value.clone() for name, value in recorded.sums.items()}

    def _record(self, batch: ShapedBatch) -> _Recorded | None:
        copy = batch.clone()
        try:
            (_, sums), replay = self._recorder.record(partial(self.backward, copy))
        except RuntimeError as error:
            self._works = False
            self._graphs.clear()
            self._gradients.clear()
            logger.warning(
                "trainer.cuda_graphs: no graph from now on, because recording one failed (%s)",
                failure(error),
            )
            return None
        self._graphs[batch.shape] = _Recorded(copy, sums, replay)
        return self._graphs[batch.shape]

    def _attach_gradients(self) -> None:
        """Let the weights have the gradients that graphs add to, with the same numbers."""
        new = []
        for parameter, gradient in self._gradients.items():
            if parameter.grad is None:
                new.append(gradient)
            elif parameter.grad is not gradient:
                gradient.copy_(parameter.grad)
            parameter.grad = gradient
        if new:
            torch._foreach_zero_(new)

    def _forget_moved_weights(self) -> None:
        """Drop all graphs if weights are no longer where they were recorded."""
        addresses = [parameter.data_ptr() for parameter in self._parameters]
        if addresses != self._addresses:
            self._addresses = addresses
            self._seen.clear()
            self._graphs.clear()


def graphless_reason(config: RunConfig, device: torch.device, processes: int) -> str | None:
    """Why the updates of a run cannot be recorded; None if they can."""
    if device.type != "cuda":
        return f"it trains on {device.type}, not on a CUDA GPU"
    if processes > 1 or config.trainer.strategy != "auto":
        return "gradients are summed over several processes"
    if config.gradient_checkpointing:
        return "gradient_checkpointing=true restores random numbers in the backward pass"
    if config.model.layer_drop:
        return f"model.layer_drop={config.model.layer_drop} computes other layers in each update"
    return None


def graphed_backward(
    backward: Backward, module: nn.Module, config: RunConfig, device: torch.device, processes: int
) -> Backward:
    """``backward`` with graphs, if the run wants them and can have them; otherwise a log line."""
    if not config.trainer.cuda_graphs:
        return backward
    reason = graphless_reason(config, device, processes)
    if reason is not None:
        logger.warning("trainer.cuda_graphs: no graph is used, because %s", reason)
        return backward
    return GraphedBackward(backward, module.parameters(), GpuRecorder(device))
