"""Fully sharded data parallel (FSDP): each rank keeps a part of weights and optimizer state."""

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from pytorch_lightning.strategies.parallel import ParallelStrategy
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from transformer.checkpoint.archive import SHARDS
from transformer.checkpoint.checkpoint import all_finite, write_payload
from transformer.checkpoint.sharded import (
    SUFFIX,
    StoredTensor,
    delete_unnamed,
    described,
    read_into,
    split,
)
from transformer.common.errors import InputError
from transformer.common.files import sync
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.training.checkpointing import AtomicCheckpointIO
from transformer.training.distributed.ranks import join_group

logger = logging.getLogger(__name__)


def shard(model: Any, mesh: DeviceMesh, precision: str | int) -> None:
    """Shard the weights of rank 0 over the ranks, unless they are: a model may be fitted again.

    A layer is gathered while it computes; its gradient is summed over the ranks after every
    micro-batch. Rajbhandari et al. 2020, "ZeRO"; Zhao et al. 2023, "PyTorch FSDP".
    """
    if isinstance(model, FSDPModule):
        return
    policy = layer_policy(precision, mesh.device_type)
    # Layers that share weights are gathered with the rest of the model.
    if model.config.share_layers == "none":
        layers = [m for m in model.modules() if isinstance(m, EncoderLayer | DecoderLayer)]
        for layer in layers:
            _shard(layer, mesh, mp_policy=policy)
            if isinstance(layer, DecoderLayer):
                register_fsdp_forward_method(layer, "start")
    # The output projection is used after the model's forward pass (cross_entropy.py).
    _shard(model, mesh, reshard_after_forward=False)


def layer_policy(precision: str | int, device: str) -> MixedPrecisionPolicy:
    """In mixed precision a GPU gathers layers in bfloat16, and sums gradients in float32."""
    if precision != "bf16-mixed" or device == "cpu":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


def _shard(module: nn.Module, mesh: DeviceMesh, **settings: Any) -> None:
    module.to(mesh.device_type)
    for tensor in (*module.parameters(), *module.buffers()):
        if not isinstance(tensor, DTensor):
            dist.broadcast(tensor.detach(), src=0)
    sharded = fully_shard(module, mesh=mesh, **settings)
    # Losses are sums (update.py), and so are gradients.
    sharded.set_gradient_divide_factor(1.0)
    sharded.set_force_sum_reduction_for_comms(True)


class ShardedStrategy(ModelParallelStrategy):
    """Trains an ``UpdateModule`` with FSDP, and checkpoints of which each rank writes its part.

    Lightning's strategy cannot join after a restart by torchrun, write in the background, keep the
    old checkpoint if a write fails, read one without running code of a pickle, or resume from one
    file; nor does it gather the weights for a validation, or free the device at the end.
    """

    def __init__(self, ranks: int) -> None:
        super().__init__(data_parallel_size=ranks, tensor_parallel_size=1)
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """False as for other strategies: callbacks are restored before the fit starts."""
        return False

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def setup_environment(self) -> None:
        join_group(self.root_device)
        super().setup_environment()
        # Ranks communicate while they write, in the background.
        self._writers = dist.new_group(backend="gloo")

    def teardown(self) -> None:
        """Wait for a checkpoint that is being written, and move everything off the device."""
        ParallelStrategy.teardown(self)
        self._writer.shutdown()

    def _units(self) -> Iterator[FSDPModule]:
        assert self.lightning_module is not None
        yield from (m for m in self.lightning_module.modules() if isinstance(m, FSDPModule))

    def on_validation_start(self) -> None:
        """Gather all weights: ranks translate different sentences, each at its own speed."""
        with torch.inference_mode(False), torch.no_grad():
            for unit in self._units():
                unit.unshard()
                unit.set_reshard_after_forward(False, recurse=False)

    def on_validation_end(self) -> None:
        assert self.lightning_module is not None
        with torch.inference_mode(False), torch.no_grad():
            for unit in self._units():
                unit.set_reshard_after_forward(
                    unit is not self.lightning_module.model, recurse=False
                )
                unit.reshard()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The state by number of the weight, as in a checkpoint of one process."""
        return optimizer.state_dict()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        """Copy this rank's part to the CPU, and write it in the background (``checkpoint_io``)."""
        self._io.wait()
        file = Path(filepath)
        folder = file.with_name(f"{file.stem}-{self.broadcast(uuid.uuid4().hex[:12])}{SUFFIX}")
        index, tensors = split(checkpoint)
        parts = dcp.async_save(
            tensors,
            storage_writer=dcp.FileSystemWriter(folder),
            planner=dcp.DefaultSavePlanner(flatten_state_dict=False),
            process_group=self._writers,
        )
        assert isinstance(parts, Future)
        self._io.pending = self._writer.submit(
            self._write_index, index, list(tensors), parts, folder, file
        )

    def _write_index(
        self,
        index: dict[str, Any],
        names: list[str],
        parts: Future[Metadata],
        folder: Path,
        file: Path,
    ) -> InputError | None:
        """Write the index on rank 0 once all ranks have written; return the error of any rank."""
        try:
            metadata = parts.result()
            if self.is_global_zero:
                sync(folder)
                write_payload(index | {SHARDS: described(metadata, names, folder)}, file)
            return None
        except (CheckpointException, InputError, OSError) as error:
            failed = _one_line(error, file)
            if self.is_global_zero:
                logger.error("%s; the old checkpoint is kept, and training continues", failed)
            return failed
        finally:
            if self.is_global_zero:
                delete_unnamed(file.parent)

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint without the tensors in parts; each rank reads its rows of them."""
        return self._io.load_index(Path(checkpoint_path))

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        weights = self.lightning_module.state_dict()
        _fill((weights[name], saved) for name, saved in checkpoint["state_dict"].items())

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            weights = [p for group in optimizer.param_groups for p in group["params"]]
            state = {number: dict(moments) for number, moments in saved["state"].items()}
            pairs = []
            for number, moments in state.items():
                # The number of steps, a scalar, stays as it is.
                for name, value in moments.items():
                    if value.shape == weights[number].shape:
                        moments[name] = torch.empty_like(weights[number], requires_grad=False)
                        pairs.append((moments[name], value))
            _fill(pairs)
            optimizer.load_state_dict({**saved, "state": state})

    @property
    def _io(self) -> AtomicCheckpointIO:
        assert isinstance(self.checkpoint_io, AtomicCheckpointIO)
        return self.checkpoint_io


def _one_line(error: BaseException, file: Path) -> InputError:
    """The error of a write, of the first rank that had one."""
    if isinstance(error, InputError):
        return error
    on_rank = ""
    if isinstance(error, CheckpointException):
        rank, (error, _) = min(error.failures.items())
        on_rank = f" on rank {rank}"
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return InputError(
        f"{file} cannot be written ({reason}{on_rank}); free some space, or check the folder"
    )


@torch.no_grad()
def _fill(pairs: Iterable[tuple[Tensor, Any]]) -> None:
    """Set tensors of this rank to saved ones: whole, or in parts that this rank reads."""
    pairs = list(pairs)
    read_into((saved, tensor) for tensor, saved in pairs if isinstance(saved, StoredTensor))
    for tensor, saved in pairs:
        if not isinstance(saved, StoredTensor):
            tensor.copy_(_like(saved, tensor))
        elif not all_finite(tensor.to_local() if isinstance(tensor, DTensor) else tensor):
            raise InputError(f"{saved.name} in {saved.parts.folder} holds NaN or infinity")


def _like(saved: Tensor, tensor: Tensor) -> Tensor:
    """A whole saved tensor, sharded as the tensor of this rank is."""
    if not isinstance(tensor, DTensor):
        return saved
    # Every rank has the whole tensor: none needs to send it.
    return distribute_tensor(
        saved.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None
    )
