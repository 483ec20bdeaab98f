"""Data-parallel training (DDP): each process has all the weights, and gradients are summed."""

import os
from dataclasses import replace

import torch
from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy

from transformer.common.errors import InputError
from transformer.settings.trainer import TrainerConfig
from transformer.training.distributed.launcher import count_devices
from transformer.training.distributed.rendezvous import external_rank, shared_store


class ReplicatedStrategy(DDPStrategy):
    """Connects processes like Lightning's DDP, but does not wrap the model.

    DDP's wrapper sends gradients during the backward pass. If a rank runs out of memory there, the
    other ranks wait for ever.
    """

    def setup_distributed(self) -> None:
        """Create the process group, also after a restart by torchrun with other addresses."""
        rank = external_rank() if TorchElasticEnvironment.detect() else None
        if rank is not None and not torch.distributed.is_initialized():
            device = self.root_device
            torch.distributed.init_process_group(
                self._get_process_group_backend(),
                store=shared_store(rank),
                rank=rank.rank,
                world_size=rank.ranks,
                timeout=self._timeout,
                device_id=None if device.type == "cpu" else device,
            )
        super().setup_distributed()

    def configure_ddp(self) -> None:
        """Give every rank the weights of rank 0."""
        assert self.model is not None
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            torch.distributed.broadcast(tensor.detach(), src=0)


def require_gpu(trainer: TrainerConfig) -> None:
    """Raise InputError if training wants a GPU and there is none, with what trains here."""
    if trainer.accelerator not in ("gpu", "cuda") or torch.cuda.is_available():
        return
    if trainer.accelerator == "gpu" and torch.backends.mps.is_available():
        return
    here = "trainer=cpu"
    if trainer.devices not in (1, "1") or trainer.strategy != "auto":
        here = "trainer.accelerator=cpu trainer.devices=2"
    raise InputError(
        f"trainer.accelerator={trainer.accelerator}: torch finds no GPU here; on a CPU train with "
        f"{here}"
    )


def resolve_devices(trainer: TrainerConfig) -> TrainerConfig:
    """The arguments of the trainer, with the number of processes of torchrun."""
    devices, nodes = trainer.devices, trainer.num_nodes
    if TorchElasticEnvironment.detect():
        here, machines = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"])
        if devices in (-1, "-1", "auto"):
            devices = here
        if (devices != here and count_devices(trainer) != here) or nodes not in (1, machines):
            raise InputError(
                f"torchrun has started {here} processes on each of {machines} machines; set "
                f"trainer.devices={here} and leave trainer.num_nodes out"
            )
        return replace(trainer, devices=devices, num_nodes=machines)
    if nodes > 1 and not SLURMEnvironment.detect():
        raise InputError(
            f"trainer.num_nodes={nodes}: start one call on every machine with torchrun or srun"
        )
    return trainer
