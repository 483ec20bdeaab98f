"""Plans and loads the batches of a training and a validation dataset for Lightning.

Does not know what the datasets are made of: datamodule.py fills them with sentence pairs.
"""

import logging
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

from pytorch_lightning import LightningDataModule

from transformer.data.batching.batch_stream import MixedBatches, PlannedBatches
from transformer.data.batching.keyed_dataset import KeyedDataset, PlannedDataset
from transformer.data.batching.loader import EpochLoader, Placed, UpdateLoader
from transformer.data.batching.rank_assignment import RankAssignment, next_batch
from transformer.data.batching.sampler import BatchKey, BatchPlan, BatchSequence
from transformer.data.config import DataConfig
from transformer.data.corpora.mixture import format_weights, sampling_weights
from transformer.data.tokenization.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class BatchModule(LightningDataModule, ABC):
    """Batches in their order: shuffled to train on, from where the trainer stands; or all.

    Attributes:
        accumulation: Micro-batches of an update on one rank; who trains sets it.
    """

    def __init__(self, data: DataConfig) -> None:
        """Set out how to plan; nothing is read yet."""
        super().__init__()
        self._data = data
        self.accumulation = 1
        self._loader: UpdateLoader[Any] | None = None
        self._before: dict[str, Any] | None = None
        # Whether the log says what is left out: Lightning prepares a second time.
        self._judged = False

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """What cuts the text into pieces.

        Raises:
            InputError: it must be learnt, and the text cannot be read or does not suit it.
        """

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The evaluation splits there are: "validation", and what else the corpus has."""

    @property
    @abstractmethod
    def _training(self) -> KeyedDataset[Any]: ...

    @property
    @abstractmethod
    def _validation(self) -> PlannedDataset[Any]: ...

    @cached_property
    def row(self) -> BatchSequence:
        """All batches that training may ever take.

        Raises:
            InputError: no pair is left to train on, or one is longer than the budget.
        """
        data, training = self._data, self._training
        assert isinstance(training, PlannedDataset), "what has no lengths has a row of its own"
        rows = [
            PlannedBatches(
                BatchPlan(*part.lengths(), batch_tokens=data.batch_tokens, seed=data.seed), position
            )
            for position, part in enumerate(training.parts)
        ]
        if data.corpora is None:
            return rows[0]
        shares = sampling_weights(data, [row.epoch_length for row in rows])
        logger.info("shares of the batches: %s", format_weights(shares))
        return MixedBatches(rows, list(shares.values()), data.seed)

    def setup(self, stage: str) -> None:
        """Open the encoded text that a stage needs; makes it if `prepare_data` did not."""
        if stage == "fit":
            _ = self._training
        if stage in ("fit", "validate"):
            _ = self._validation

    def train_dataloader(self) -> UpdateLoader[Any]:
        """Return the updates of this rank, from where the trainer stands."""
        rank, ranks = self._index()
        self._loader = UpdateLoader(
            self._training,
            self.row,
            shares=RankAssignment(ranks, self.accumulation),
            rank=rank,
            done=self._updates_done,
            workers=self._data.workers,
            pin_memory=self._on_gpu(),
        )
        if self._before is not None:
            self._loader.load_state_dict(self._before)
        return self._loader

    def resume_from(self, state: dict[str, Any] | None) -> None:
        """Deal out, from the next loader on, what follows on the batches of another run.

        Args:
            state: what its loader said; None: it was dealt out as it is now.
        """
        self._before = state
        if state is not None and state["row"] is not None and isinstance(self.row, Placed):
            self.row.load_state_dict(state["row"])

    def epochs(self, done: int) -> float | None:
        """Return how many epochs so many updates make, those of the runs it resumes included.

        Where nobody knows how long an epoch is, there is no number before its first part is over.
        """
        if self._loader is not None:
            epochs = self._loader.epochs(done)
        else:
            shares = RankAssignment(self._index()[1], self.accumulation)
            epochs = self.row.epochs(next_batch(self._before, done, self.row, shares))
        return epochs if epochs or self.row.epoch_length else None

    def val_dataloader(self) -> EpochLoader[Any]:
        """Return the validation batches of this rank: the best segmentation, in one order."""
        rank, ranks = self._index()
        source, target = self._validation.lengths()
        plan = BatchPlan(
            source,
            target,
            batch_tokens=self._data.batch_tokens,
            shuffle=False,
            multiple_of=min(ranks, len(source)),
        )
        batches = plan.epoch(0)
        keys = [BatchKey(0, batches[index]) for index in range(rank, len(batches), ranks)]
        return EpochLoader(self._validation, keys, pin_memory=self._on_gpu())

    def largest_batch(self) -> Any:
        """Return the training batch that needs the most memory, as planned."""
        _, key = self.row.largest()
        return self._training[key]

    def teardown(self, stage: str) -> None:
        """End the worker processes; Lightning calls this after a run."""
        if self._loader is not None:
            self._loader.close()

    def on_exception(self, exception: BaseException) -> None:
        """End the worker processes; Lightning calls this when a run fails or is stopped."""
        self.teardown("fit")

    def _index(self) -> tuple[int, int]:
        """Return the rank of this process, and the number of ranks."""
        return (
            (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        )

    def _on_gpu(self) -> bool:
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    def _updates_done(self) -> int:
        """Return how many updates the run has made, those of the runs it resumes included."""
        return 0 if self.trainer is None else self.trainer.global_step
