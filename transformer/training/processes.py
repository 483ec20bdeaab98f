"""How several processes train one model: each has all the weights, and they sum their gradients.

It does not know when the gradients are summed: update.py does it, once an update.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch
from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy, Strategy

from transformer.errors import InputError
from transformer.training.launcher import count_devices
from transformer.training.rendezvous import external_place


class ReplicatedStrategy(DDPStrategy):
    """Connects processes much as Lightning's DDP does, but wraps the model in nothing.

    DDP's wrapper sends gradients while the backward pass runs, and a rank that runs out of memory
    there leaves the others waiting for ever.
    """

    def setup_distributed(self) -> None:
        """Meet the other ranks; Lightning leaves alone what is there.

        Where torchrun starts its processes anew, torch would have them look for each other at the
        addresses of those before.
        """
        place = external_place() if TorchElasticEnvironment.detect() else None
        if place is not None and not torch.distributed.is_initialized():
            device = self.root_device
            torch.distributed.init_process_group(
                self._get_process_group_backend(),
                store=place.store(),
                rank=place.rank,
                world_size=place.ranks,
                timeout=self._timeout,
                device_id=None if device.type == "cpu" else device,
            )
        super().setup_distributed()

    def configure_ddp(self) -> None:
        """Give every rank the weights of rank 0."""
        assert self.model is not None
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            torch.distributed.broadcast(tensor.detach(), src=0)


def placed(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the trainer, with as many processes as whoever starts them has started.

    Raises:
        InputError: The arguments ask for another number, or for several machines where nobody
            starts processes on them.
    """
    devices, nodes = trainer["devices"], trainer["num_nodes"]
    if TorchElasticEnvironment.detect():
        here, machines = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"])
        if devices in (-1, "-1", "auto"):
            devices = here
        if devices != here and count_devices(trainer) != here:
            raise InputError(
                f"torchrun has started {here} processes on this machine, and trainer.devices="
                f"{devices} says another number; set trainer.devices={here}"
            )
        if nodes not in (1, machines):
            raise InputError(
                f"torchrun runs on {machines} machines, and trainer.num_nodes={nodes} says another "
                "number; leave it out"
            )
        return {**trainer, "devices": devices, "num_nodes": machines}
    if nodes > 1 and not SLURMEnvironment.detect():
        raise InputError(
            f"trainer.num_nodes={nodes}: start one call on every machine with torchrun or srun"
        )
    if trainer["accelerator"] == "cpu" and devices in (-1, "-1"):
        raise InputError(
            "trainer.devices=-1 takes every GPU; on a CPU say how many processes, such as "
            "trainer.devices=2"
        )
    return dict(trainer)


def build_strategy(name: str, *, several: bool) -> Strategy | str:
    """The strategy for the name in the config.

    Args:
        name: auto or ddp.
        several: Whether there is more than one process.

    Raises:
        InputError: It is none of auto and ddp.
    """
    if name not in ("auto", "ddp"):
        raise InputError(f"trainer.strategy={name} is not for this training; set auto, ddp or fsdp")
    return ReplicatedStrategy() if several else "auto"
