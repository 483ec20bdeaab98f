"""Plans and loads the batches of a training and a validation dataset for Lightning.

Does not know what the datasets are made of: datamodule.py fills them with sentence pairs.
"""

from abc import ABC, abstractmethod
from typing import Any

from pytorch_lightning import LightningDataModule

from transformer.data.config import DataConfig
from transformer.data.dataset import PlannedDataset
from transformer.data.loader import BatchLoader
from transformer.data.sampler import BatchPlan
from transformer.data.tokenizer import Tokenizer


class BatchModule(LightningDataModule, ABC):
    """Batches in their order: shuffled to train on, from where the trainer stands; or all."""

    def __init__(self, data: DataConfig) -> None:
        """Set out how to plan; nothing is read yet."""
        super().__init__()
        self._data = data
        self._loader: BatchLoader[Any] | None = None

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
    def _training(self) -> PlannedDataset[Any]: ...

    @property
    @abstractmethod
    def _validation(self) -> PlannedDataset[Any]: ...

    def setup(self, stage: str) -> None:
        """Open the encoded text that a stage needs; makes it if `prepare_data` did not."""
        if stage == "fit":
            _ = self._training
        if stage in ("fit", "validate"):
            _ = self._validation

    def train_dataloader(self) -> BatchLoader[Any]:
        """Return the training batches of this rank, from where the trainer stands."""
        self._loader = BatchLoader(
            self._training,
            self._plan(self._training, shuffle=True),
            workers=self._data.workers,
            pin_memory=self._on_gpu(),
            done=self._batches_done,
        )
        return self._loader

    def val_dataloader(self) -> BatchLoader[Any]:
        """Return the validation batches of this rank: the best segmentation, in one order."""
        return BatchLoader(
            self._validation,
            self._plan(self._validation, shuffle=False),
            workers=0,
            pin_memory=self._on_gpu(),
        )

    def teardown(self, stage: str) -> None:
        """End the worker processes; Lightning calls this after a run."""
        if self._loader is not None:
            self._loader.close()

    def _plan(self, dataset: PlannedDataset[Any], shuffle: bool) -> BatchPlan:
        return BatchPlan(
            *dataset.lengths(),
            batch_tokens=self._data.batch_tokens,
            seed=self._data.seed,
            shuffle=shuffle,
            rank=0 if self.trainer is None else self.trainer.global_rank,
            world_size=1 if self.trainer is None else self.trainer.world_size,
        )

    def _on_gpu(self) -> bool:
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    def _batches_done(self) -> int:
        """Return how many batches the run has trained on, the runs it resumes included."""
        if self.trainer is None or getattr(self.trainer, "overfit_batches", 0) > 0:
            return 0
        return self.trainer.fit_loop.epoch_loop.batch_progress.total.completed
