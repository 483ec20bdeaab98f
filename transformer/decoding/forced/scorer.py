"""How probable given translations are: forced decoding of raw text, in batches.

It does not know files. What a search finds has the same log-probability here, as long as its pieces
are those that the tokenizer cuts the text into.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from transformer.data.batching.batch import Batch, Row, collate
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.inference_mode import evaluating
from transformer.decoding.length_bucketing import bucket_batches, check_lengths
from transformer.decoding.search.ensemble import Ensemble, Model
from transformer.decoding.search.interface import check_no_nan
from transformer.decoding.search.length_penalty import log_probabilities, score_targets


@dataclass(frozen=True)
class TargetScore:
    """The log-probability of one translation (natural logarithm).

    Attributes:
        log_probability: Of all pieces and the end of the sentence.
        tokens: The pieces, and the end.
        token_log_probabilities: Of each of them, given those before.
    """

    log_probability: float
    tokens: tuple[str, ...]
    token_log_probabilities: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def score_pairs(
    model: Model,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    *,
    batch_tokens: int = 4096,
    first: int = 1,
) -> list[TargetScore]:
    """Score the targets of sentence pairs, in their order.

    Args:
        model: Or an ensemble. Moved nowhere; its mode is restored.
        tokenizer: The one the model was trained with.
        pairs: Raw (source, target) text.
        batch_tokens: The most padded tokens of a batch, on the longer side.
        first: The number of the first pair, by which an error names it.

    Raises:
        InputError: A text is longer than the model has positions for (learned ones end).
    """
    sources = tokenizer.encode_source([source for source, _ in pairs])
    targets = tokenizer.encode_target([target for _, target in pairs])
    lengths = [max(map(len, sides)) + 1 for sides in zip(sources, targets, strict=True)]
    check_lengths(lengths, model.max_length, "score", first=first)
    rows = score_subwords(model, list(zip(sources, targets, strict=True)), batch_tokens)
    return [
        TargetScore(math.fsum(row), (*tokenizer.subwords(target), "</s>"), tuple(row))
        for target, row in zip(targets, rows, strict=True)
    ]


def score_subwords(
    model: Model, pairs: Sequence[tuple[Row, Row]], batch_tokens: int = 4096
) -> list[list[float]]:
    """Log-probabilities of the target pieces of each pair, and of its end.

    Args:
        model: See ``score_pairs``.
        pairs: Source and target pieces, without beginning or end.
        batch_tokens: See ``score_pairs``.

    Raises:
        NotANumber: The model gave NaN.
    """
    scores: list[list[float]] = [[]] * len(pairs)
    device = next(model.parameters()).device
    lengths = [max(map(len, pair)) + 1 for pair in pairs]
    with evaluating(model):
        for indices in bucket_batches(lengths, batch_tokens):
            sources, targets = zip(*(pairs[index] for index in indices), strict=True)
            batch = collate(sources, targets).to(device)
            found = _score_batch(model, batch)
            check_no_nan(found, batch.target_input.size(1))
            for index, row, target in zip(indices, found.tolist(), targets, strict=True):
                scores[index] = row[: len(target) + 1]
    return scores


def _score_batch(model: Model, batch: Batch) -> Float[Tensor, "batch target"]:
    """Log-probabilities of the target's tokens; 0 at padding."""
    targets = batch.target_input, batch.target_output
    if not isinstance(model, Ensemble):
        return score_targets(model, model.encode(batch.source), *targets)
    real = batch.target_output != model.config.pad
    following = model.combine(
        [
            log_probabilities(member, member.encode(batch.source), batch.target_input, real)
            for member in model.members
        ]
    )
    scores = following.new_zeros(real.shape)
    scores[real] = following.gather(1, batch.target_output[real][:, None]).squeeze(1)
    return scores
