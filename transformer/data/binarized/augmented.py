"""The pairs that augmentation changes: a function of (seed, epoch, number); their lengths."""

import numpy as np
from jaxtyping import Float, Int

from transformer.data.batching.batch_sequence import Lengths
from transformer.data.binarized.corpus import EncodedCorpus, Indices
from transformer.data.binarized.pair_seeds import DISTURBANCE, NEXT_PAIR, pair_seeds
from transformer.data.binarized.preprocess import SIDES
from transformer.data.text.parallel import Pair
from transformer.data.text_noise.augmentation import (
    JOINED,
    KINDS,
    UNCHANGED,
    Linked,
    disturbed,
    drawn_kinds,
)
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.augmentation import AugmentationConfig

# Pairs that are changed in each way to estimate the lengths of all.
_PROBE = 200


class AugmentedCorpus:
    """Changes pairs of a corpus, which has their texts."""

    def __init__(
        self, corpus: EncodedCorpus, config: AugmentationConfig, seed: int, *, links: bool
    ) -> None:
        self._corpus, self._config, self._seed, self._links = corpus, config, seed, links

    def changed(self, pairs: Indices, epoch: int) -> dict[int, Linked]:
        """Return the changed ones among pairs of the corpus, by their index in ``pairs``."""
        seeds = pair_seeds(self._seed, epoch, pairs, DISTURBANCE)
        kinds = drawn_kinds(self._config, seeds)
        rows = np.flatnonzero(kinds != UNCHANGED)
        if not len(rows):
            return {}
        own = self._linked(pairs[rows])
        joined = np.flatnonzero(kinds[rows] == JOINED)
        following = self._linked(self._next(epoch, pairs[rows[joined]]))
        followers = dict(zip(joined.tolist(), following, strict=True))
        drawn = zip(rows.tolist(), kinds[rows].tolist(), seeds[rows].tolist(), strict=True)
        return {
            row: disturbed(kind, seed, own[index], followers.get(index, own[index]))
            for index, (row, kind, seed) in enumerate(drawn)
        }

    def lengths(self, epoch: int, clean: Lengths, tokenizer: Tokenizer, limit: int) -> Lengths:
        """Estimate the lengths of all pairs in an epoch, from those of the clean pairs.

        A joined pair has the sum; other kinds have the 90th percentile of the factors of a sample.
        A pair that would be longer than the limit has its clean length: it will not be changed.
        """
        pairs = np.arange(len(self._corpus), dtype=np.int32)
        kinds = drawn_kinds(self._config, pair_seeds(self._seed, epoch, pairs, DISTURBANCE))
        if self._factors is None:
            self._factors = self._measured(tokenizer)
        joined = np.flatnonzero(kinds == JOINED)
        following = self._next(epoch, pairs[joined])
        planned = []
        for lengths, side in zip(clean, self._factors, strict=True):
            # UNCHANGED is the index of the last factor, which is 1.
            longer = np.maximum(lengths, np.ceil(lengths * side[kinds])).astype(np.int32)
            longer[joined] = lengths[joined] + lengths[following]
            planned.append(longer)
        fits = np.maximum(*planned) <= limit
        source, target = (np.where(fits, *both) for both in zip(planned, clean, strict=True))
        return source, target

    _factors: Float[np.ndarray, "side kind"] | None = None

    def _measured(self, tokenizer: Tokenizer) -> Float[np.ndarray, "side kind"]:
        factors = np.ones((2, len(KINDS) + 1))
        pairs = np.arange(min(_PROBE, len(self._corpus)))
        own = self._linked(pairs)
        clean = [self._corpus.ids(side, pairs) for side in SIDES]
        for kind, name in enumerate(KINDS):
            if kind == JOINED or not getattr(self._config, name):
                continue
            texts = [disturbed(kind, seed, pair, pair).pair for seed, pair in enumerate(own)]
            sides = zip(*tokenizer.encode_pairs(texts), strict=True)
            for side, (rows, former) in enumerate(zip(sides, clean, strict=True)):
                grown = [len(row) / len(ids) for row, ids in zip(rows, former, strict=True)]
                factors[side, kind] = np.quantile(grown, 0.9)
        return factors

    def _linked(self, pairs: Indices) -> list[Linked]:
        texts: list[Pair] = list(
            zip(*(self._corpus.texts(side, pairs) for side in SIDES), strict=True)
        )
        links = self._corpus.links(pairs) if self._links else [None] * len(texts)
        return [Linked(*both) for both in zip(texts, links, strict=True)]

    def _next(self, epoch: int, pairs: Indices) -> Int[np.ndarray, " pair"]:
        drawn = pair_seeds(self._seed, epoch, pairs, NEXT_PAIR)
        return drawn % len(self._corpus)
