"""Plans and loads the batches of a training and a validation dataset for Lightning."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from pytorch_lightning import Callback, LightningDataModule, Trainer
from pytorch_lightning.callbacks import Timer
from torch.utils.data import Dataset

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.batching.batch_sequence import (
    BatchKey,
    BatchPlan,
    BatchSequence,
    Lengths,
    MixedBatches,
    MixedDataset,
    PlannedBatches,
    PlannedDataset,
    RankAssignment,
    ReplannedBatches,
    next_batch,
)
from transformer.data.batching.batch_shapes import ShapedPlan
from transformer.data.batching.loader import EpochLoader, UpdateLoader
from transformer.data.corpora.resolve import sampling_weights
from transformer.data.text.training_filters import log_level
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.run import RunConfig, completed

logger = logging.getLogger(__name__)


class BatchModule(LightningDataModule, ABC):
    """Training batches from the current update on, ``accumulation`` for each, and validation.

    A batch of Lightning is a whole update, and an epoch has no end: bound training by ``max_steps``
    or ``max_time``.
    """

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        """Store the config of a run; nothing is read yet.

        Without a ``tokenizer``, such as that of a checkpoint, one is learned; with one, the config
        sets only its sampling.
        """
        super().__init__()
        config = completed(config)
        data = config.data
        model = config.model
        self.accumulation = config.trainer.accumulate_grad_batches
        self._data = data
        self._tokenizer_config = config.tokenizer
        self._initial_tokenizer = tokenizer
        # Whether batches have word alignments.
        self._links = config.loss.alignment_weight > 0
        # Of a source and of a target of the model, bos or eos included; None: unlimited.
        learned = model.positions == "learned"
        self._positions = (model.source_positions, model.max_length) if learned else None
        self._class_token = model.class_token
        self._augmentation = config.augmentation
        # How files become vectors; None: sources are text.
        self._source_config = data.source_config(model.front_end)
        self._cache = given_path(data.cache)
        self._loader: UpdateLoader[Any] | None = None
        self._before: dict[str, Any] | None = None
        # Whether left out pairs are logged: Lightning calls `prepare_data` twice.
        self._reported = False
        self.max_left_out = data.max_left_out

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """Given, or learned; raises InputError if the text is unreadable or unsuitable."""

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The evaluation splits: "validation", and others that the corpus has."""

    @property
    @abstractmethod
    def _training(self) -> Dataset[Any]:
        """A `PlannedDataset` or a `MixedDataset`, unless `sequence` is overridden."""

    @property
    @abstractmethod
    def _validation(self) -> PlannedDataset[Any]: ...

    @cached_property
    def sequence(self) -> BatchSequence:
        """All batches of training, without an end; raises InputError as `BatchPlan`."""
        training = self._training
        assert isinstance(training, MixedDataset | PlannedDataset)
        parts = training.parts if isinstance(training, MixedDataset) else [training]
        sequences = [self._planned_batches(part, index) for index, part in enumerate(parts)]
        if self._data.corpora is None:
            return sequences[0]
        weights = sampling_weights(self._data, [sequence.epoch_length for sequence in sequences])
        shown = ", ".join(f"{name} {weight:.1%}" for name, weight in weights.items())
        logger.info("shares of the batches: %s", shown)
        return MixedBatches(sequences, list(weights.values()), self._data.seed)

    def _planned_batches(self, part: PlannedDataset[Any], corpus: int) -> PlannedBatches:
        budget = self._data.budget
        seed = self._data.seed
        lengths_of_epoch = part.lengths_of_epoch
        if lengths_of_epoch is None:
            lengths = part.lengths()
            shapes = self._data.batch_shapes
            plan = (
                ShapedPlan(*lengths, batch_tokens=budget, shapes=shapes, seed=seed)
                if shapes
                else BatchPlan(*lengths, batch_tokens=budget, seed=seed)
            )
            return PlannedBatches(plan, corpus)
        return ReplannedBatches(
            lengths_of_epoch,
            corpus,
            batch_tokens=budget,
            seed=seed,
            content=str(self._augmentation),
        )

    def setup(self, stage: str) -> None:
        """Open the encoded text of a stage; makes it if `prepare_data` did not."""
        if stage == "fit":
            _ = self._training
        if stage in ("fit", "validate"):
            _ = self._validation

    def lengths(self) -> dict[str, Lengths]:
        """Return the planned tokens of each usable pair, by split; a stream has no "train"."""
        training = self._training
        parts = training.parts if isinstance(training, MixedDataset) else [training]
        splits = {"train": parts, "validation": [self._validation]}
        lengths = {}
        for split, datasets in splits.items():
            sides = [part.lengths() for part in datasets if isinstance(part, PlannedDataset)]
            if sides:
                sources, targets = zip(*sides, strict=True)
                lengths[split] = np.concatenate(sources), np.concatenate(targets)
        return lengths

    def longest_source(self) -> int | None:
        """Length in subwords that one in 1,000 training sources exceeds; None for a stream."""
        lengths = self.lengths().get("train")
        if lengths is None:
            return None
        return int(np.quantile(lengths[0], 0.999, method="higher"))

    def train_dataloader(self) -> UpdateLoader[Any]:
        """The updates of this rank, from the current one on.

        Raises InputError if they would not end, or if their size was not measured.
        """
        if self._data.batch_tokens == "auto":
            raise InputError(
                "data.batch_tokens=auto is measured by the command and the function train alone; "
                "set a number, such as 4096"
            )
        if self.trainer is not None and _has_no_end(self.trainer):
            raise InputError(
                f"Trainer(max_epochs={self.trainer.max_epochs}): an epoch has no end here; set "
                "max_steps or max_time"
            )
        rank, ranks = self._rank()
        self._loader = UpdateLoader(
            self._training,
            self.sequence,
            assignment=RankAssignment(ranks, self.accumulation),
            rank=rank,
            # Also counts the updates of the runs that it resumes.
            done=lambda: 0 if self.trainer is None else self.trainer.global_step,
            workers=self._data.workers,
            pin_memory=self._on_gpu(),
            gather=self._gathered,
        )
        if self._before is not None:
            self._loader.load_state_dict(self._before)
        return self._loader

    def resume_from(self, state: dict[str, Any] | None) -> None:
        """Let the next loader continue after an earlier run, from the state of its loader."""
        self._before = state
        if state is not None and state["row"] is not None:
            self.sequence.load_state_dict(state["row"])

    def epochs(self, done: int) -> float | None:
        if self._loader is not None:
            epochs = self._loader.epochs(done)
        else:
            assignment = RankAssignment(self._rank()[1], self.accumulation)
            epochs = self.sequence.epochs(next_batch(self._before, done, self.sequence, assignment))
        return epochs if epochs or self.sequence.epoch_length else None

    def val_dataloader(self) -> EpochLoader[Any]:
        """Return the validation batches of this rank, with the best segmentations, not shuffled."""
        rank, ranks = self._rank()
        lengths = self._validation.lengths()
        plan = BatchPlan(
            *lengths,
            batch_tokens=self._data.budget,
            shuffle=False,
            multiple_of=min(ranks, len(lengths[0])),
        )
        batches = plan.epoch(0)
        keys = [BatchKey(0, batches[index]) for index in range(rank, len(batches), ranks)]
        return EpochLoader(self._validation, keys, pin_memory=self._on_gpu())

    def largest_batch(self) -> Any:
        _, key = self.sequence.largest()
        return self._training[key]

    def teardown(self, stage: str) -> None:
        if self._loader is not None:
            self._loader.close()

    def on_exception(self, exception: BaseException) -> None:
        self.teardown("fit")

    def _usable(
        self, split: str, where: object, unit: str, lengths: Lengths
    ) -> Int[np.ndarray, " usable"]:
        """Return the indices of the pairs that are neither empty nor too long; InputError: none."""
        limit = min(self._data.max_length, self._data.budget - 1)
        usable = np.flatnonzero((np.minimum(*lengths) > 0) & (np.maximum(*lengths) <= limit))
        count = len(lengths[0])
        if not len(usable):
            raise InputError(
                f"{where}: all {count:,} {unit} are empty or longer than {limit} tokens; "
                "give other text, or raise data.max_length and data.batch_tokens"
            )
        left_out = count - len(usable)
        if split == "validation" and left_out:
            logger.log(
                log_level(left_out, count),
                f"validation: {left_out:,} of {count:,} {unit} are empty or longer than {limit} "
                "tokens, and left out of val/loss (data.max_length, data.batch_tokens)",
            )
        return usable

    def _check_positions(self, lengths: Iterable[int], where: Callable[[int], str]) -> None:
        """Check that sentences, with bos or eos, fit the model; ``where`` names one by index."""
        if self._positions is None:
            return
        _, positions = self._positions
        needed = [length + 1 for length in lengths]
        for index, length in enumerate(needed):
            if length > positions:
                raise InputError(
                    f"{where(index)}: a sentence of {length} tokens does not fit "
                    f"model.max_length={positions} with model.positions=learned; shorten it, "
                    f"or set model.max_length={max(needed)}"
                )

    def _rank(self) -> tuple[int, int]:
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)

    def _gathered(self, value: Any) -> list[Any]:
        """Return the values of all ranks, which all of them give."""
        values = [value] * self._rank()[1]
        if len(values) > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def _on_gpu(self) -> bool:
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"


def _has_no_end(trainer: Trainer) -> bool:
    """Whether only a number of epochs bounds the training of a trainer."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    timed = any(isinstance(callback, Timer) for callback in callbacks)
    bounded = trainer.max_steps >= 0 or timed or isinstance(trainer.limit_train_batches, int)
    return trainer.max_epochs not in (None, -1) and not bounded
