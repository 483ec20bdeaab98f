"""Data-parallel training (DDP): each rank has all the weights (Li et al. 2020, "PyTorch DDP")."""

import os
from dataclasses import replace
from typing import Any

import torch
from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy

from transformer.common.errors import InputError
from transformer.settings.model import ModelConfig
from transformer.settings.training import TrainerConfig
from transformer.training.distributed.launcher import count_devices
from transformer.training.distributed.ranks import join_group


class ReplicatedStrategy(DDPStrategy):
    """Lightning's strategy around DistributedDataParallel, also after a restart by torchrun.

    DDP's ``static_graph`` fails an assertion of torch 2.13 when an update has several
    micro-batches.
    """

    def setup_distributed(self) -> None:
        join_group(self.root_device)
        super().setup_distributed()


def replicated_strategy(model: ModelConfig, **settings: Any) -> ReplicatedStrategy:
    """The strategy for a model; only dropped layers, and a user's own, lack gradients."""
    return ReplicatedStrategy(
        broadcast_buffers=False,  # no buffer changes in training
        gradient_as_bucket_view=True,
        find_unused_parameters=model.layer_drop > 0 or model.has_own_layers,
        **settings,
    )


def require_gpu(trainer: TrainerConfig) -> None:
    """Raise InputError if training wants a GPU and there is none, with what trains here."""
    if trainer.accelerator not in ("gpu", "cuda") or torch.cuda.is_available():
        return
    if trainer.accelerator == "gpu" and torch.backends.mps.is_available():
        return
    keys = "trainer=cpu"
    if trainer.devices not in (1, "1") or trainer.strategy != "auto":
        keys = "trainer.accelerator=cpu trainer.devices=2"
    raise InputError(
        f"trainer.accelerator={trainer.accelerator}: torch finds no GPU here; on a CPU train with "
        f"{keys}"
    )


def resolve_devices(trainer: TrainerConfig) -> TrainerConfig:
    """The arguments of the trainer, with the number of processes of torchrun."""
    devices = trainer.devices
    nodes = trainer.num_nodes
    if TorchElasticEnvironment.detect():
        processes = int(os.environ["LOCAL_WORLD_SIZE"])
        machines = int(os.environ["GROUP_WORLD_SIZE"])
        if devices in (-1, "-1", "auto"):
            devices = processes
        differs = devices != processes and count_devices(trainer) != processes
        if differs or nodes not in (1, machines):
            raise InputError(
                f"torchrun has started {processes} processes on each of {machines} machines; set "
                f"trainer.devices={processes} and leave trainer.num_nodes out"
            )
        return replace(trainer, devices=devices, num_nodes=machines)
    if nodes > 1 and not SLURMEnvironment.detect():
        raise InputError(
            f"trainer.num_nodes={nodes}: start one call on every machine with torchrun or srun"
        )
    return trainer
