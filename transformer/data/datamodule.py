"""Wires text, tokenizer and encoded corpora together; batch_module.py plans and loads from them.

Does not know models, losses or scores.
"""

import hashlib
import json
import logging
from functools import cached_property
from pathlib import Path

import numpy as np

from transformer.data.batch import Batch
from transformer.data.batch_module import BatchModule
from transformer.data.cache import locked, remembered
from transformer.data.config import DataConfig
from transformer.data.dataset import BatchDataset, EncodedCorpus, KeyedDataset
from transformer.data.filters import Filters
from transformer.data.lines import is_large
from transformer.data.preparation import encode_corpus
from transformer.data.splits import Split, find_splits
from transformer.data.subword_sampling import SamplingDataset
from transformer.data.tokenizer import Tokenizer, TokenizerConfig
from transformer.errors import InputError

__all__ = ["DataConfig", "DataModule", "TokenizerConfig"]

logger = logging.getLogger(__name__)

# Of the encoded files; to be raised when their columns change.
_LAYOUT = 2


class DataModule(BatchModule):
    """Batches for training and validation, and the raw text of every evaluation split."""

    def __init__(
        self,
        data: DataConfig,
        tokenizer: TokenizerConfig,
        *,
        initial_tokenizer: Tokenizer | None = None,
        links: bool = False,
    ) -> None:
        """Set out what to load; nothing is read yet.

        Args:
            data: the corpus and its batches.
            tokenizer: how to learn the vocabulary.
            initial_tokenizer: used in place of one learnt from the corpus (a checkpoint's own);
                only the sampling strength is taken from ``tokenizer`` then.
            links: let training batches carry word alignment, which the corpus must know.
        """
        super().__init__(data)
        self._tokenizer_config = tokenizer
        self._initial_tokenizer = initial_tokenizer
        self._links = links
        self._cache = Path(data.cache).expanduser()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer: given, from the cache, or learnt from the training text.

        Raises:
            InputError: the text cannot be read, or does not suit the vocabulary size.
        """
        if self._initial_tokenizer is not None:
            return self._initial_tokenizer.with_sampling(self._tokenizer_config.sampling)
        train = self._split("train")
        with locked(self._cache):
            return Tokenizer.train(
                self._tokenizer_config, train.__iter__, self._cache, train.fingerprint(self._cache)
            )

    @property
    def splits(self) -> tuple[str, ...]:
        """The evaluation splits there are: "validation", "test", and what the corpus adds."""
        return tuple(name for name in self._splits if name != "train")

    def texts(self, split: str) -> tuple[list[str], list[str]]:
        """Return all sources and all references of an evaluation split, line for line.

        Raises:
            InputError: there is no such split, or its text cannot be read or has no line.
        """
        pairs = self._pairs(split)
        if not pairs:
            path = self._split(split).corpus.paths[0]
            raise InputError(
                f"{path}: the {split} text has no line; fill the file, or give another as "
                f"data.{split}"
            )
        return [source for source, _ in pairs], [reference for _, reference in pairs]

    def training_targets(self, most: int) -> list[list[int]]:
        """Return the target pieces of the first pairs that training uses, in one segmentation.

        Args:
            most: as many pairs, if there are.

        Raises:
            InputError: the text cannot be read.
        """
        corpus = EncodedCorpus(self._encoded_path("train"))
        rows = corpus.ids("target", np.arange(min(most, len(corpus))))
        return [row.tolist() for row in rows]

    def prepare_data(self) -> None:
        """Learn the vocabulary and encode training and validation text, unless in the cache.

        Raises:
            InputError: text or links cannot be read, or do not suit each other or the vocabulary
                size.
        """
        # What is missing or malformed is known before the hard work, not when it is over.
        if self._links:
            self._split("train").links_fingerprint()
        for split in self.splits:
            self.texts(split)
        self._encoded_path("train")
        self._encoded_path("validation")

    @cached_property
    def _splits(self) -> dict[str, Split]:
        return find_splits(self._data)

    def _split(self, name: str) -> Split:
        if name not in self._splits:
            raise InputError(f"the corpus has no split {name!r}; it has {', '.join(self._splits)}")
        return self._splits[name]

    def _pairs(self, name: str) -> list[tuple[str, str]]:
        """Return the pairs of an evaluation split; few of a large corpus are kept in the cache."""
        split = self._split(name)
        if split.inverted or not any(map(is_large, split.corpus.paths)):
            return list(split)
        question = f"held out: {type(split).__name__} {split.fingerprint(self._cache)}"
        pairs = json.loads(remembered(self._cache, question, lambda: json.dumps(list(split))))
        return [(source, target) for source, target in pairs]

    def _encoded_path(self, name: str) -> Path:
        """Return the encoded shards of a split, made if they are not in the cache."""
        split, tokenizer = self._split(name), self.tokenizer
        filters = links = None
        texts = name == "train" and tokenizer.config.sampling > 0
        decides = f"{split.fingerprint(self._cache)} {tokenizer.fingerprint} {texts}"
        if name == "train":
            data = self._data
            filters = Filters(data.max_length, data.max_ratio, data.deduplicate)
            if self._links:
                links = split.word_links
                decides += f" {split.links_fingerprint()}"
        decides += f" {filters} {_LAYOUT}"
        key = hashlib.sha256(decides.encode()).hexdigest()[:24]
        folder = self._cache / f"{name}-{key}"
        with locked(self._cache):
            if not folder.exists():
                encode_corpus(
                    *(name, split.__iter__, tokenizer, filters, folder),
                    links=links,
                    texts=texts,
                    workers=self._data.prepare_workers,
                )
        return folder

    @cached_property
    def _training(self) -> KeyedDataset[Batch]:
        data = self._data
        corpus = EncodedCorpus(self._encoded_path("train"))
        if self.tokenizer.config.sampling > 0:
            return SamplingDataset(
                corpus,
                self.tokenizer,
                seed=data.seed,
                batch_tokens=data.batch_tokens,
                max_length=data.max_length,
                linked=self._links,
            )
        linked_by = self.tokenizer if self._links else None
        return BatchDataset(corpus, np.arange(len(corpus), dtype=np.int32), linked_by)

    @cached_property
    def _validation(self) -> BatchDataset:
        """Return the validation pairs that a loss can be computed on; says how many are not.

        Raises:
            InputError: it can be computed on none.
        """
        corpus = EncodedCorpus(self._encoded_path("validation"))
        source, target = corpus.lengths("source"), corpus.lengths("target")
        limit = min(self._data.max_length, self._data.batch_tokens - 1)
        usable = (np.minimum(source, target) > 0) & (np.maximum(source, target) <= limit)
        if not usable.any():
            raise InputError(
                f"{self._split('validation').corpus.paths[0]}: every validation pair is empty or "
                f"longer than {limit} tokens; give other text, or raise data.max_length and "
                "data.batch_tokens"
            )
        if not usable.all():
            logger.info(
                "validation: %s of %s pairs, empty or longer than %s tokens, are left out of the "
                "loss; BLEU counts them",
                f"{(~usable).sum():,}",
                f"{len(usable):,}",
                limit,
            )
        return BatchDataset(corpus, np.flatnonzero(usable))
