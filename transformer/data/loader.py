"""Hands batches to the trainer, and goes on from where a resumed run stopped.

Knows the sampler and how many batches are done; does not know texts or models.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader

from transformer.data.dataset import PlannedDataset
from transformer.data.sampler import BatchPlan, BatchSampler

B = TypeVar("B")

logger = logging.getLogger(__name__)


class BatchLoader(Generic[B]):
    """An iterable of batches over a DataLoader, which Lightning takes as it is.

    It is no DataLoader itself and shows no sampler: Lightning would replace it in a distributed
    run, and with it the token budget. The number of batches done says where to begin. It is asked
    when the first batch is, not when the iterator is made: only then has Lightning restored it.
    (Lightning's own count of epochs is no help: it also counts one that `max_steps` broke off.)
    """

    def __init__(
        self,
        dataset: PlannedDataset[B],
        plan: BatchPlan,
        *,
        workers: int,
        pin_memory: bool,
        done: Callable[[], int] = lambda: 0,
    ) -> None:
        """Load the batches of a plan.

        Args:
            dataset: makes the batches.
            plan: what is in them.
            workers: processes that make them; 0 makes them as they are asked for.
            pin_memory: in page-locked memory, for a GPU to fetch.
            done: how many batches this rank has had in all epochs; asked at each start.
        """
        self.plan = plan
        self._done = done
        self._sampler = BatchSampler(plan)
        self._make_loader = partial(
            DataLoader,
            dataset,
            sampler=self._sampler,
            batch_size=None,
            collate_fn=_whole,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=4 if workers > 0 else None,
            pin_memory=pin_memory,
        )
        self._loader: DataLoader[B] | None = None

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch on this rank."""
        return len(self.plan)

    def __iter__(self) -> Iterator[B]:
        """Yield the batches of the epoch that are not done yet; none before them is made."""
        # Every epoch has as many batches, so that their number alone tells where we are.
        epoch, index = divmod(self._done(), len(self.plan))
        self._sampler.set_epoch(epoch)
        self._sampler.start_at(index)
        if self._loader is None:
            self._loader = self._make_loader()
        complete = False
        try:
            yield from self._loader
            complete = True
        finally:
            if not complete:
                self.close()

    def close(self) -> None:
        """End the worker processes; an epoch broken off does so too, the next starts new ones.

        Left to the garbage collector they would end late, perhaps within another run.
        """
        self._loader = None

    def state_dict(self) -> dict[str, Any]:
        """Return what decides the order; the position in it is the trainer's to keep."""
        return self.plan.identity()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare with the order of the run that is resumed, and warn when it is another."""
        mine = self.state_dict()
        changed = [name for name in mine if mine[name] != state.get(name)]
        if changed:
            logger.warning(
                "resuming with other batches than before (%s): the rest of this epoch may repeat "
                "some pairs and miss others",
                ", ".join(f"{name} {state.get(name)} -> {mine[name]}" for name in changed),
            )


def _whole(batch: Any) -> Any:
    return batch
