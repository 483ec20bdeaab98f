"""What ranks tell each other beside the gradients: where the run is, and that one has failed.

It knows torchrun and SLURM, which start the ranks of several machines, and nothing of training.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from transformer.common.errors import AnotherRankFailed, InputError, Interrupted

if TYPE_CHECKING:
    from torch.distributed import Store

_FAILED = "transformer/failed"
_RUN = "transformer/run"
_PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class Place:
    """A rank among others that someone else has started.

    Attributes:
        rank: Its number.
        ranks: How many there are, on all machines.
        address: Of the machine of rank 0.
        port: Where the ranks meet there.
    """

    rank: int
    ranks: int
    address: str
    port: int

    def store(self) -> "Store":
        """What all ranks read from and write to; each start by torchrun begins with an empty one.

        torchrun may keep it itself, for all its starts. Otherwise rank 0 does, and keeps it on:
        where training begins on the same port, it takes the one that is there.
        """
        from torch.distributed import PrefixStore, TCPStore

        hosts = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        store = TCPStore(
            *(self.address, self.port, self.ranks, hosts, _PATIENCE),
            wait_for_workers=False,
            multi_tenant=True,
        )
        _KEPT.append(store)
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"transformer/start-{start}", store)

    def agreed(self, value: str) -> str:
        """What rank 0 says; the value of the others does not matter.

        Raises:
            InputError: Rank 0 does not answer.
        """
        try:
            store = self.store()
            if self.rank == 0:
                store.set(_RUN, value)
            return str(store.get(_RUN).decode())
        except RuntimeError as error:
            raise InputError(
                f"rank {self.rank} cannot reach rank 0 at {self.address}:{self.port}; see what it "
                "says, and whether the machines can reach each other"
            ) from error


_KEPT: list[object] = []
"""Stores live as long as the process."""


def external_place() -> Place | None:
    """The place of this process among those that torchrun or SLURM has started; None: alone.

    Raises:
        InputError: SLURM has been called with options that contradict each other.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ and "SLURM_NTASKS" not in os.environ:
        return None
    from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

    for kind in (TorchElasticEnvironment, SLURMEnvironment):
        if kind.detect():
            try:
                found = kind()
            except RuntimeError as error:
                raise InputError(" ".join(str(error).split())) from error
            if found.world_size() > 1:
                index = found.global_rank(), found.world_size()
                return Place(*index, found.main_address, found.main_port)
    return None


@contextmanager
def failing_together() -> Iterator[None]:
    """Let a rank that fails only because another has failed say no more than that.

    Raises:
        AnotherRankFailed: In place of the error of a collective.
    """
    from torch import distributed as dist

    try:
        yield
    except (InputError, Interrupted):
        if dist.is_initialized():
            # All may fail alike, and the one that keeps the store be gone already.
            with suppress(RuntimeError):
                dist.distributed_c10d._get_default_store().set(_FAILED, "")
        raise
    except RuntimeError as error:
        if dist.is_initialized() and _another_has_failed():
            raise AnotherRankFailed("stopped, since another rank has failed") from error
        if not dist.is_initialized() and isinstance(error, dist.DistNetworkError):
            reason = str(error).partition("\n")[0]
            raise AnotherRankFailed(f"stopped before all ranks had met: {reason}", 1) from error
        raise


def _another_has_failed() -> bool:
    from torch import distributed as dist

    store = dist.distributed_c10d._get_default_store()
    try:
        store.wait([_FAILED], timedelta(seconds=3))
    except dist.DistStoreError:
        # None has said so.
        return False
    except RuntimeError:
        # The rank that keeps the store is gone.
        return True
    return True
