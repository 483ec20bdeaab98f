"""Predictions of models with one stack, line by line: probabilities of texts, and tags of words."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from transformer.checkpoint import checkpoint
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.common.errors import InputError, errors_name
from transformer.data.batching.batch import UNTAGGED, collate
from transformer.data.batching.batch_sequence import BatchKey
from transformer.data.datamodules.tagging import TaggedDataset
from transformer.data.text.conllu import UPOS, TaggedSentence
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batching import bucket_batches, make_windows, without_end
from transformer.model.single_stack import SingleStack, assemble_single_stack
from transformer.settings.tokenizer import PAD

LOGIT_ROWS = 512
"""Number of predictions whose logits are in memory at once."""


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
        task = checkpoint.checkpoint_task(payload)
        if task != cls.task:
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
            tokens = self.count_tokens(line)
            if tokens > limit:
                raise InputError(
                    f"{name}:{number}: a line of {tokens} tokens is longer than "
                    f"model.max_length={limit} allows; cut it"
                )
            yield line


@dataclass(frozen=True)
class TextProbability:
    """The probability of a text."""

    tokens: tuple[str, ...]
    token_log_probabilities: tuple[float, ...]
    """Natural logarithms: of each subword given the earlier subwords, and of the end."""

    @property
    def log_probability(self) -> float:
        """The log-probability of the whole text and its end."""
        return math.fsum(self.token_log_probabilities)

    @property
    def perplexity(self) -> float:
        """The perplexity per subword; the end counts as a subword."""
        return perplexity(-self.log_probability / len(self.token_log_probabilities))

    def to_line(self) -> str:
        """The log-probability and the perplexity, separated by a tab."""
        return f"{self.log_probability:.6f}\t{self.perplexity:.4f}"

    def to_json(self) -> dict[str, Any]:
        return {
            "log_probability": round(self.log_probability, 6),
            "perplexity": round(self.perplexity, 4),
            "tokens": self.tokens,
            "token_log_probabilities": [round(value, 6) for value in self.token_log_probabilities],
        }


def perplexity(nats: float) -> float:
    """Perplexity of a mean negative log-likelihood; infinite if the model has diverged."""
    return float(torch.tensor(nats, dtype=torch.float64).exp())


class LanguageModel(Predictor):
    """Computes the probability of texts."""

    task = "language_modeling"
    causal = True

    @staticmethod
    def sizes(tokenizer: Tokenizer) -> tuple[int, int]:
        return tokenizer.target_vocab_size, tokenizer.target_vocab_size

    def predict(self, texts: Sequence[str]) -> list[TextProbability]:
        """Score raw texts; an empty text has the probability that a text ends at once."""
        rows = self.tokenizer.encode_target(texts)
        scores = self.log_probabilities(rows)
        return [
            TextProbability(tuple(self.tokenizer.subwords(row)), tuple(score.tolist()))
            for row, score in zip(rows, scores, strict=True)
        ]

    def count_tokens(self, text: str) -> int:
        """The subwords, and bos."""
        return 1 + len(self.tokenizer.encode_target([text])[0])

    @torch.inference_mode()
    def log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[Float[Tensor, " tokens"]]:
        """Natural logarithms of each token (without bos) given the earlier tokens, and of eos."""
        scores = [torch.empty(0)] * len(rows)
        for indices in bucket_batches([len(row) + 1 for row in rows], self.batch_tokens):
            batch_rows = [list(rows[index]) for index in indices]
            batch = collate(batch_rows, batch_rows).to(self.model.projection.weight.device)
            real = batch.target_output != PAD
            hidden = self.model(batch.target_input)[real].split(LOGIT_ROWS)
            targets = batch.target_output[real].split(LOGIT_ROWS)
            chunks = []
            for hidden_chunk, target in zip(hidden, targets, strict=True):
                following = self.model.logits(hidden_chunk).float().log_softmax(-1)
                chunks.append(following.gather(1, target[:, None])[:, 0])
            text_scores = torch.cat(chunks).cpu().split(real.sum(1).tolist())
            for index, score in zip(indices, text_scores, strict=True):
                scores[index] = score
        return scores


@dataclass(frozen=True)
class Tags:
    """The tags of a sentence."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """One for each word, of ``UPOS``."""
    probabilities: tuple[float, ...]

    def to_line(self) -> str:
        return " ".join(self.tags)

    def to_json(self) -> dict[str, Any]:
        """All fields, probabilities with four decimals."""
        rounded = [round(probability, 4) for probability in self.probabilities]
        return {"words": self.words, "tags": self.tags, "probabilities": rounded}


class Tagger(Predictor):
    """Tags words."""

    task = "tagging"
    causal = False

    @staticmethod
    def sizes(tokenizer: Tokenizer) -> tuple[int, int]:
        return tokenizer.source_vocab_size, len(UPOS)

    def predict(self, texts: Sequence[str]) -> list[Tags]:
        """Tag sentences whose words, and punctuation, are separated by spaces."""
        return self.tag([text.split() for text in texts])

    def count_tokens(self, text: str) -> int:
        """The subwords of all words, and eos."""
        return 1 + sum(max(1, len(word)) for word in self.tokenizer.encode_source(text.split()))

    @torch.inference_mode()
    def tag(self, sentences: Sequence[Sequence[str]]) -> list[Tags]:
        """Tag the words of each sentence; punctuation is separate, as in the training text."""
        # The dataset needs tags, which here only mark the first subword of each word.
        untagged = [TaggedSentence(tuple(words), ("X",) * len(words)) for words in sentences]
        dataset = TaggedDataset(untagged, self.tokenizer)
        tagged = [Tags((), (), ())] * len(untagged)
        lengths = [length + 1 for length in dataset.lengths()[0].tolist()]
        for indices in bucket_batches(lengths, self.batch_tokens):
            batch = dataset[BatchKey(0, np.array(indices))].to(self.model.projection.weight.device)
            best = self.model.logits(self.model(batch.source)).float().softmax(-1).max(-1)
            for index, values, classes, tags in zip(indices, *best, batch.tags, strict=True):
                first = tags != UNTAGGED
                predicted = tuple(UPOS[number] for number in classes[first].tolist())
                probabilities = tuple(values[first].tolist())
                tagged[index] = Tags(untagged[index].words, predicted, probabilities)
        return tagged
