"""How several processes train one model: each has all the weights, and they sum their gradients.

It does not know when the gradients are summed: update.py does it, once an update.
"""

import torch
from pytorch_lightning.strategies import DDPStrategy, Strategy

_DDP = {
    "auto": "popen",
    "ddp": "popen",
    "ddp_spawn": "spawn",
    "ddp_fork": "fork",
}
"""Lightning's names of data-parallel strategies, and how they start their processes."""


class ReplicatedStrategy(DDPStrategy):
    """Starts processes as Lightning's DDP does, but wraps the model in nothing.

    DDP's wrapper sends gradients while the backward pass runs, and a rank that runs out of memory
    there leaves the others waiting for ever.
    """

    def configure_ddp(self) -> None:
        """Give every rank the weights of rank 0."""
        assert self.model is not None
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            torch.distributed.broadcast(tensor.detach(), src=0)


def build_strategy(name: str, *, several: bool) -> Strategy | str:
    """The strategy for the name in the config.

    Args:
        name: As Lightning's, such as auto, ddp or fsdp.
        several: Whether there is more than one process.
    """
    if name in _DDP and several:
        return ReplicatedStrategy(start_method=_DDP[name])  # type: ignore[arg-type]
    return name
