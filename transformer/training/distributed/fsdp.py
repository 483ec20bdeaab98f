"""Fully sharded data parallel (FSDP): each rank keeps a part of weights and optimizer state."""

import logging
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from transformer.checkpoint.archive import SHARDS, write_archive
from transformer.checkpoint.sharded import SUFFIX, delete_unnamed, split
from transformer.common.errors import InputError
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.training.checkpointing.checkpoint_io import AtomicCheckpointIO
from transformer.training.distributed.ddp import ReplicatedStrategy

logger = logging.getLogger(__name__)


class ShardedStrategy(ReplicatedStrategy):
    """Each rank keeps a part of weights, gradients and optimizer state of an ``UpdateModule``.

    A layer is gathered while it computes; its gradient is summed over the ranks after every
    micro-batch. Rajbhandari et al. 2020, "ZeRO"; Zhao et al. 2023, "PyTorch FSDP".
    """

    def model_to_device(self) -> None:
        """Do nothing: each layer moves to the device when it is sharded."""

    def configure_ddp(self) -> None:
        """Shard the model once: after a divergence the same model is fitted again."""
        model = self._trained_model()
        if isinstance(model, FSDPModule):
            # Lightning has moved it off the device at the end of the last fit.
            self._trained_model().to(self.root_device)
            return
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        precision = layer_policy(self.precision_plugin.precision, self.root_device)
        layers = [m for m in model.modules() if isinstance(m, EncoderLayer | DecoderLayer)]
        # Layers that share weights are gathered with the rest of the model.
        for layer in layers if model.config.share_layers == "none" else ():
            self._shard(layer, mesh, mp_policy=precision)
            if isinstance(layer, DecoderLayer):
                register_fsdp_forward_method(layer, "start")
        # The output projection is used after the model's forward pass (cross_entropy.py).
        self._shard(model, mesh, reshard_after_forward=False)

    def _shard(self, module: nn.Module, mesh: DeviceMesh, **settings: Any) -> None:
        """Shard the weights of a module, with the values of rank 0, unless they are sharded."""
        module.to(self.root_device)
        for tensor in (*module.parameters(), *module.buffers()):
            if not isinstance(tensor, DTensor):
                torch.distributed.broadcast(tensor.detach(), src=0)
        sharded = fully_shard(module, mesh=mesh, **settings)
        # Losses are sums (update_module.py), and so are gradients.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)

    def _trained_model(self) -> Any:
        assert self.lightning_module is not None
        return self.lightning_module.model

    def _units(self) -> Iterator[FSDPModule]:
        yield from (m for m in self._trained_model().modules() if isinstance(m, FSDPModule))

    def on_validation_start(self) -> None:
        """Gather all weights: ranks translate different sentences, each at its own speed."""
        with torch.inference_mode(False), torch.no_grad():
            for unit in self._units():
                unit.unshard()
                unit.set_reshard_after_forward(False, recurse=False)

    def on_validation_end(self) -> None:
        with torch.inference_mode(False), torch.no_grad():
            for unit in self._units():
                unit.set_reshard_after_forward(unit is not self._trained_model(), recurse=False)
                unit.reshard()

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        weights = dict(self.lightning_module.named_parameters(remove_duplicate=False))
        state = {
            name: _alike(tensor, weights.get(name))
            for name, tensor in checkpoint["state_dict"].items()
        }
        self.lightning_module.load_state_dict(state, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            weights = [p for group in optimizer.param_groups for p in group["params"]]
            state = {
                number: {name: _alike(value, weights[number]) for name, value in of_one.items()}
                for number, of_one in saved["state"].items()
            }
            optimizer.load_state_dict({**saved, "state": state})

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        """Write this rank's part; then rank 0 writes the index, unless a rank could not write."""
        file, size = Path(filepath), self.world_size
        save = self.broadcast(uuid.uuid4().hex[:12])
        names = [f"{file.stem}-{save}-{rank}of{size}{SUFFIX}" for rank in range(size)]
        index, parts = split(checkpoint, partial(local_part, copies={}))
        error: InputError | None = None
        try:
            write_archive(parts, file.parent / names[self.global_rank])
        except InputError as failed:
            error = failed
            logger.error("%s; the old checkpoint is kept, and training continues", error)
        # No rank knows the result before all have tried.
        failed_somewhere = self.reduce_boolean_decision(error is not None, all=False)
        if failed_somewhere:
            assert isinstance(self.checkpoint_io, AtomicCheckpointIO)
            self.checkpoint_io.error = error or InputError(
                f"{file} cannot be written: another rank could not write its part; free some "
                "space, or check the folder"
            )
        if self.is_global_zero:
            if not failed_somewhere:
                self.checkpoint_io.save_checkpoint(index | {SHARDS: names}, file)
            delete_unnamed(file.parent)


def layer_policy(precision: str | int, device: torch.device) -> MixedPrecisionPolicy:
    """In mixed precision a GPU gathers layers in bfloat16, and sums gradients in float32."""
    if precision != "bf16-mixed" or device.type == "cpu":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


def local_part(value: Any, copies: dict[tuple[int, Size], Tensor]) -> Tensor | None:
    """This rank's part of a sharded tensor, on the CPU; tied weights share one of the copies."""
    if not isinstance(value, DTensor):
        return None
    local = value.to_local().detach()
    key = local.data_ptr(), local.shape
    if key not in copies:
        copies[key] = local.cpu()
    return copies[key]


def _alike(value: Any, weight: Any) -> Any:
    if not isinstance(weight, DTensor) or getattr(value, "shape", None) != weight.shape:
        return value
    whole = value.to(weight.device)
    # Every rank has read the whole tensor: none needs to send it.
    return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None)
