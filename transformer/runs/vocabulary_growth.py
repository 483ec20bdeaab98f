"""Fine-tuning: tags and words that the vocabulary of a checkpoint lacks are added to it.

A new vector is the mean of those that stood for it before, so that its logit is never the largest
alone: old text is translated as before.
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.checkpoint.checkpoint import PORTABLE

logger = logging.getLogger(__name__)


def grown(payload: dict[str, Any], tags: Tags, words: Sequence[str]) -> dict[str, Any]:
    """The checkpoint of a translator with these tags and words added to its vocabulary."""
    portable = payload[PORTABLE]
    before = Tokenizer.from_state(portable["tokenizer"])
    now = before.with_words(words).with_tags(before.tags.extended(tags))
    if now.fingerprint == before.fingerprint:
        return payload
    source, target = now.grown_from(before)
    weights = dict(payload["state_dict"])
    for name, rows in (
        ("source_embedding.tokens.lookup.weight", source),
        ("target_embedding.tokens.lookup.weight", target),
        ("projection.weight", target),
        ("projection.bias", target),
    ):
        if (weight := weights.get(f"model.{name}")) is not None:
            weights[f"model.{name}"] = _means(weight, rows)
    new = len(target) - before.target_vocab_size
    logger.info("tokens added to the vocabulary of the checkpoint: %d", new)
    sizes = {"source_vocab_size": len(source), "target_vocab_size": len(target)}
    more = {"tokenizer": now.to_state(), "model": portable["model"] | sizes}
    return payload | {"state_dict": weights, PORTABLE: portable | more}


def _means(weight: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    """For each list of rows their mean; a single row stays as it is, bit for bit."""
    return torch.stack([weight[r[0]] if len(r) == 1 else weight[list(r)].mean(0) for r in rows])
