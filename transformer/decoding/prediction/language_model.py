"""Probability of texts: a causal stack predicts each subword and the end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.data.batching.batch import collate
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.length_bucketing import bucket_batches
from transformer.decoding.prediction.predictor import Predictor
from transformer.settings.tokenizer import PAD


def perplexity(nats: float) -> float:
    """Perplexity of a mean negative log-likelihood; infinite if the model has diverged."""
    return float(torch.tensor(nats, dtype=torch.float64).exp())


LOGIT_ROWS = 512
"""Number of predictions whose logits are in memory at once."""


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
            "token_log_probabilities": [round(one, 6) for one in self.token_log_probabilities],
        }


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
        found = [torch.empty(0)] * len(rows)
        for indices in bucket_batches([len(row) + 1 for row in rows], self.batch_tokens):
            chosen = [list(rows[index]) for index in indices]
            batch = collate(chosen, chosen).to(self.model.projection.weight.device)
            real = batch.target_output != PAD
            parts = self.model(batch.target_input)[real], batch.target_output[real]
            chunks = []
            for hidden, right in zip(*(part.split(LOGIT_ROWS) for part in parts), strict=True):
                following = self.model.logits(hidden).float().log_softmax(-1)
                chunks.append(following.gather(1, right[:, None])[:, 0])
            scores = torch.cat(chunks).cpu()
            for index, row in zip(indices, scores.split(real.sum(1).tolist()), strict=True):
                found[index] = row
        return found
