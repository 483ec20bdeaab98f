"""Data of translation: text, tokenizer, encoded corpora. It does not know models or scores."""

import hashlib
import logging
import math
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import Dataset

from transformer.common.errors import InputError, raise_objections
from transformer.common.files import locked
from transformer.data.batching.batch import Batch
from transformer.data.batching.batch_sequence import BatchSequence, MixedDataset
from transformer.data.binarized.corpus import SIDES, EncodedCorpus, count_pairs, encode_corpus
from transformer.data.binarized.dataset import BatchDataset, SegmentationSampler
from transformer.data.corpora.evaluation_text import Texts, read_texts
from transformer.data.corpora.resolve import (
    AnySplit,
    BalancedText,
    config_tags,
    find_splits,
    no_training_text,
)
from transformer.data.corpora.split import Split, check_sources, log_held_out, naming_line, numbered
from transformer.data.datamodules.base import BatchModule
from transformer.data.text.document_windows import joined_pairs
from transformer.data.text.lines import check_files_exist
from transformer.data.text.parallel import Pair, at_speeds
from transformer.data.text.training_filters import Filters
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.data.tokenization.vocabulary import Pairs
from transformer.settings.tokenizer import FILES, SYMBOLS, UNK

if TYPE_CHECKING:
    from transformer.data.streaming.streamed_batches import TrainingStream

logger = logging.getLogger(__name__)

# Share of the tokens of a side from which a warning says that they are unknown.
_MANY_UNKNOWN = 0.1

# Version of the encoded files; to be raised when their columns change.
_LAYOUT = 2


class TranslationData(BatchModule):
    """Batches for training and validation, and the raw text of every evaluation split."""

    @cached_property
    def _stream(self) -> "TrainingStream | None":
        """The training text of ``data.streaming``; None if it is encoded as a whole."""
        if not self._data.streaming:
            return None
        from transformer.data.streaming.streamed_batches import TrainingStream

        return TrainingStream(self._data, self._augmentation)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer: given, from the cache, or learned from the training text."""
        initial = self._initial_tokenizer
        tags = config_tags(self._data)
        config = self._tokenizer_config if initial is None else initial.config
        raise_objections(self._objections(config.features, bool(tags.sentences)))
        if initial is not None:
            tags.check_same_tags(initial.tags)
            self._check_source(initial)
            return initial.with_sampling(self._tokenizer_config.sampling)
        return self._learned_tokenizer().with_tags(tags)

    def _objections(self, features: str | None, documents: bool) -> Iterator[str]:
        if self._data.features is not None and features is None:
            yield (
                f"data.features={self._data.features!r}: training reads tokenizer.features; "
                "without it features are letters of the source: set it, and tokenizer=char or words"
            )
        if self._augmentation.active and features is not None:
            yield "augmentation disturbs sentences, not features; set augmentation=none"
        if self._links and (documents or self._data.streaming):
            yield (
                "guided alignment needs single sentences, and no stream; set data.documents=null "
                "data.streaming=false, or loss.alignment_weight=0"
            )

    def _check_source(self, initial: Tokenizer) -> None:
        """Raise an InputError unless files become the vectors that the checkpoint has learned."""
        config = self._source_config
        if (config is not None) is not initial.reads_files:
            raise InputError(
                f"data.source_kind={self._data.source_kind}: the checkpoint was trained with other "
                "sources; set its data.source_kind, or train a new model"
            )
        if config is None:
            return
        trained = initial.vector_source.config
        if config.without_training() != trained.without_training():
            raise InputError(
                f"data.{trained.kind}, or model.front_end, makes other vectors than the checkpoint "
                "has learned; leave these keys as they were"
            )

    def _learned_tokenizer(self) -> Tokenizer:
        config = self._tokenizer_config
        cache = self._cache
        if self._stream is not None:
            with locked(cache):
                return self._stream.learned_tokenizer(config, cache, self._source_config)
        # Finding it may lock the cache, too: to fetch files, or to hold pairs out.
        split = self._split("train")
        text: Split | BalancedText = (
            split if isinstance(split, Split) else BalancedText(self._data, split.parts)
        )
        with locked(cache):
            fingerprint = text.fingerprint(cache)
            return Tokenizer.train(
                config, text.__iter__, cache, fingerprint, split.location, self._source_config
            )

    @property
    def splits(self) -> tuple[str, ...]:
        parts = ("train", "validation_") if self._data.corpora else ("train",)
        return tuple(name for name in self._splits if not name.startswith(parts))

    def texts(self, split: str) -> Texts:
        """Return the text of an evaluation split; InputError as `read_texts`, or for no split."""
        return read_texts(self._split(split), self._cache)

    def training_sample(self, limit: int) -> list[Pair]:
        """Return the first training pairs, about as many of each corpus."""
        if self._stream is not None:
            return list(self._stream.beginning(limit))
        parts = self._parts("train")
        limit_of_part = math.ceil(limit / len(parts))
        return [
            pair.texts
            for name in parts
            for pair in islice(numbered(self._part(name)), limit_of_part)
        ]

    def prepare_data(self) -> None:
        """Learn the vocabulary and encode the text, unless they are in the cache."""
        if self._stream is not None:
            self._check_files([])
            _ = self._stream.fingerprint  # finds the shards before the tokenizer is learned
            _ = self.tokenizer
            self._encoded_path("validation")
            self._check_room(["validation"])
            return
        training = self._parts("train")
        self._check_files(training)
        if not self._reported:
            for name in training:
                pairs, dropped = count_pairs(self._encoded_path(name).glob("*.arrow"))
                log_held_out(name, pairs, self._part(name))
                self._filters.report(name, dropped, pairs, self.max_left_out)
            if {*SYMBOLS, *FILES} & {*self.tokenizer.config.algorithms}:
                self._log_unknown()
            self._reported = True
        for name in self._parts("validation"):
            self._encoded_path(name)
        self._check_room([*training, *self._parts("validation")])

    def _check_room(self, names: list[str]) -> None:
        """Raise an InputError if training may meet a sentence without room in learned positions."""
        if self._positions is None:
            return
        limit = self._data.max_length
        drawn = self.tokenizer.config.sampling > 0 or self._augmentation.active
        for side, positions in zip(SIDES, self._positions, strict=True):
            reads_files = side == "source" and self.tokenizer.reads_files
            # Vectors have no end; those of a picture may have a class before them.
            room = positions - (int(self._class_token) if reads_files else 1)
            longest = {}
            for name in names:
                lengths = EncodedCorpus(self._encoded_path(name)).lengths(side)
                longest[name] = int(lengths.max(initial=0, where=lengths <= limit))
            # Nobody knows before how long what is drawn, or read from a stream, will be.
            if drawn or self._stream is not None:
                longest["train"] = limit
            for name, length in longest.items():
                if length > room:
                    raise InputError(
                        f"{name} may have a {side} of {length} tokens, and model.positions=learned "
                        f"has room for {room}; set data.max_length={room}, or more positions "
                        "(model.max_length, model.max_source_length)"
                    )

    def _check_files(self, training: list[str]) -> None:
        """Find missing and malformed files before the long work."""
        names = [*training, *(part for name in self.splits for part in self._parts(name))]
        parts = list(map(self._part, names))
        check_files_exist(path for part in parts for path in part.corpus.paths)
        for part in parts:
            check_sources(part)
        if self._links:
            for name in training:
                self._part(name).links_fingerprint()
        for split in self.splits:
            self.texts(split)

    def _log_unknown(self) -> None:
        counts = []
        largest = 0.0
        sides = SIDES[1:] if self.tokenizer.reads_files else SIDES
        for name in ("train", *self.splits):
            corpus = EncodedCorpus(*map(self._encoded_path, self._parts(name)))
            unknown = {side: corpus.frequency(side, UNK) for side in sides}
            counts.append(f"{name} {' and '.join(f'{count:,}' for count in unknown.values())}")
            for side, count in unknown.items():
                largest = max(largest, count / max(1, int(corpus.lengths(side).sum())))
        logger.info("unknown tokens of %s: %s", " and ".join(sides), ", ".join(counts))
        if largest > _MANY_UNKNOWN:
            logger.warning(
                "%.0f%% of the tokens of a side are unknown; was the vocabulary learned from other "
                "text? See tokenizer, and finetune_from where it is given",
                100 * largest,
            )

    @property
    def _filters(self) -> Filters:
        data = self._data
        return Filters(data.max_length, data.filtered_ratio, data.deduplicate)

    @cached_property
    def _splits(self) -> dict[str, AnySplit]:
        return find_splits(self._data)

    def _parts(self, name: str) -> list[str]:
        split = self._split(name)
        return [name] if isinstance(split, Split) else [f"{name}_{part}" for part in split.parts]

    def _part(self, name: str) -> Split:
        split = self._split(name)
        assert isinstance(split, Split)
        return split

    def _split(self, name: str) -> AnySplit:
        if name not in self._splits:
            if name == "train":
                raise no_training_text(self._data)
            raise InputError(f"the corpus has no split {name!r}; it has {', '.join(self._splits)}")
        return self._splits[name]

    def _encoded_path(self, name: str) -> Path:
        """Return the folder of the encoded split of one corpus, made if it is not in the cache."""
        split = self._part(name)
        training = name.startswith("train")
        tokenizer = self.tokenizer.tagged(split.tags)
        drawn = tokenizer.config.sampling > 0 or self._augmentation.active
        texts = training and (drawn or bool(self._links))
        pairs: Pairs = split.__iter__
        if training and tokenizer.reads_files:
            pairs = partial(at_speeds, split, self._data.speech.speeds)
        # All that determines the content of the files.
        identity = f"{split.fingerprint(self._cache)} {tokenizer.encoding_fingerprint} {texts}"
        if training and tokenizer.reads_files:
            identity += f" {self._data.speech.speeds}"
        if split.sentences > 1:
            pairs = partial(joined_pairs, split, tokenizer, split.sentences)
            identity += f" windows of {split.sentences} {tokenizer.tags.subwords}"
        filters = self._filters if training else None
        links = split.word_links if training and self._links else None
        if links:
            identity += f" {split.links_fingerprint()}"
        identity += f" {filters} {_LAYOUT}"
        key = hashlib.sha256(identity.encode()).hexdigest()[:24]
        folder = self._cache / f"{name}-{key}"
        with locked(self._cache):
            if not folder.exists():
                with naming_line(split):
                    encode_corpus(
                        name,
                        pairs,
                        tokenizer,
                        filters,
                        folder,
                        links=links,
                        texts=texts,
                        workers=self._data.prepare_workers,
                    )
        return folder

    @cached_property
    def sequence(self) -> BatchSequence:
        if self._stream is None:
            return super().sequence
        return self._stream.batches(self.tokenizer)

    def teardown(self, stage: str) -> None:
        super().teardown(stage)
        if "sequence" in self.__dict__:
            self.sequence.close()

    @cached_property
    def _training(self) -> Dataset[Batch]:
        if self._stream is not None:
            return self._stream.dataset(self.tokenizer)
        if self._data.corpora is None:
            return self._training_part("train")
        return MixedDataset([self._training_part(name) for name in self._parts("train")])

    def _training_part(self, name: str) -> BatchDataset:
        corpus = EncodedCorpus(self._encoded_path(name))
        tokenizer = self.tokenizer.tagged(self._part(name).tags)
        return BatchDataset(
            corpus,
            np.arange(len(corpus), dtype=np.int32),
            SegmentationSampler(tokenizer, self._data, training=True),
            links=self._links,
            augmentation=self._augmentation,
        )

    @cached_property
    def _validation(self) -> BatchDataset:
        corpus = EncodedCorpus(*map(self._encoded_path, self._parts("validation")))
        file = self._split("validation").location
        pairs = self._usable("validation", file, "pairs", corpus.sides_lengths())
        sampler = SegmentationSampler(self.tokenizer.with_sampling(0.0), self._data)
        return BatchDataset(corpus, pairs, sampler)
