"""Predictions of a model with one stack, line by line: the base of taggers and language models."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch

from transformer.checkpoint import checkpoint
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.common.errors import InputError, errors_name
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.line_windows import make_windows, without_end
from transformer.model.single_stack import SingleStack, assemble_single_stack


@runtime_checkable
class Prediction(Protocol):
    """The prediction for one text."""

    def to_line(self) -> str:
        """The prediction as text, without a line end."""

    def to_json(self) -> dict[str, Any]:
        """The prediction as plain values."""


P = TypeVar("P", bound="Predictor")


@dataclass(eq=False)
class Predictor(ABC):
    """A stack in evaluation mode, and its tokenizer; ``batch_tokens`` of a batch count padding."""

    task: ClassVar[str]
    causal: ClassVar[bool]
    """Whether the stack sees only earlier tokens."""

    model: SingleStack
    tokenizer: Tokenizer
    batch_tokens: int = 4096

    @classmethod
    def load(
        cls: type[P],
        path: str | os.PathLike[str],
        *,
        batch_tokens: int = 4096,
        device: torch.device | str = "cpu",
        trusted: bool = False,
    ) -> P:
        """Load a checkpoint file, or the best checkpoint of a run directory, of this task.

        ``trusted`` is that of ``load_checkpoint``.
        """
        file = find_checkpoint(Path(path))
        payload = checkpoint.read_merged(file)
        if (task := checkpoint.checkpoint_task(payload)) != cls.task:
            advice = "; use translate" if task == "translation" else ""
            raise InputError(f"{file} was trained for task={task}, not {cls.task}{advice}")
        portable = checkpoint.portable_part(payload)
        config = portable.config.model
        with errors_name(file):
            tokenizer = Tokenizer.from_state(portable.tokenizer)
            if (config.source_vocab_size, config.target_vocab_size) != cls.sizes(tokenizer):
                raise InputError("its model and its tokenizer have different sizes")
        assemble = partial(assemble_single_stack, causal=cls.causal)
        model = checkpoint.assemble_empty(config, assemble, trusted=trusted)
        checkpoint.load_weights(model, payload, file, assign=True)
        return cls(model.to(device), tokenizer, batch_tokens)

    @staticmethod
    @abstractmethod
    def sizes(tokenizer: Tokenizer) -> tuple[int, int]:
        """Numbers of input tokens and of classes with this tokenizer."""

    @abstractmethod
    def predict(self, texts: Sequence[str]) -> Sequence[Prediction]:
        """Predict for each text, in their order."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """The tokens of a text, its bos or eos included."""

    def predict_stream(
        self, lines: Iterable[str], *, name: str = "", ready: Callable[[], bool] | None = None
    ) -> Iterator[Prediction]:
        """Predict lines of a stream; earlier lines come before the InputError of one too long."""
        for window in make_windows(self._check_lengths(lines, name), ready):
            yield from self.predict([without_end(line) for line in window])

    def _check_lengths(self, lines: Iterable[str], name: str) -> Iterator[str]:
        limit = self.model.config.max_length
        for number, line in enumerate(lines, start=1):
            if (tokens := self.count_tokens(line)) > limit:
                raise InputError(
                    f"{name}:{number}: a line of {tokens} tokens is longer than "
                    f"model.max_length={limit} allows; cut it"
                )
            yield line
