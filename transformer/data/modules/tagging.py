"""Tagged sentences as subwords, from pocket or from CoNLL-U files.

Words are cut into subwords one by one; the first of each carries the tag of its word. It does not
know models, nor how CoNLL-U is read. Source: Devlin et al. 2019, "BERT", section 5.3.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Int

from transformer.common.cache import locked
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.batching.keyed_dataset import PlannedDataset
from transformer.data.batching.sampler import BatchKey
from transformer.data.batching.tagged_batch import UNTAGGED, TaggedBatch, collate_tagged
from transformer.data.config import DataConfig, check_not_streaming
from transformer.data.corpora.pocket import LANGUAGES, pocket_text, read_pocket_tags
from transformer.data.corpora.unused_keys import check_unused_keys
from transformer.data.encoded.length_check import check_training_lengths
from transformer.data.modules.base import BatchModule
from transformer.data.text.conllu import UPOS, TaggedSentence, read_conllu
from transformer.data.text.filters import Filters, log_level
from transformer.data.text.lines import check_files_exist
from transformer.data.text.parallel import read_lines
from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig

logger = logging.getLogger(__name__)


class TaggedDataset(PlannedDataset[TaggedBatch]):
    """Tagged sentences as subwords, in memory."""

    def __init__(self, sentences: Sequence[TaggedSentence], tokenizer: Tokenizer) -> None:
        """Cut each word, which is not blank, into subwords."""
        self.sentences = sentences
        words = list({word for sentence in sentences for word in sentence.words})
        of_word = dict(zip(words, tokenizer.encode_source(words), strict=True))
        self._subwords: list[list[int]] = []
        self._tags: list[list[int]] = []
        for sentence in sentences:
            subwords: list[int] = []
            tags: list[int] = []
            for word, tag in zip(*sentence, strict=True):
                subwords += of_word[word]
                tags += [UPOS.index(tag), *[UNTAGGED] * (len(of_word[word]) - 1)]
            self._subwords.append(subwords)
            self._tags.append(tags)

    def __getitem__(self, key: BatchKey) -> TaggedBatch:
        rows = [(self._subwords[index], self._tags[index]) for index in key.pairs]
        return collate_tagged(*zip(*rows, strict=True))

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the subwords of each sentence, twice: there is one side."""
        lengths = np.array([len(subwords) for subwords in self._subwords], dtype=np.int64)
        return lengths, lengths


class TaggingData(BatchModule):
    """The tagged text of ``data.source``: pocket's, or the user's CoNLL-U files."""

    def __init__(
        self,
        data: DataConfig,
        tokenizer: TokenizerConfig,
        *,
        initial_tokenizer: Tokenizer | None = None,
        positions: int | None = None,
    ) -> None:
        """Set out what to load; nothing is read yet.

        Args:
            data: the corpus and its batches.
            tokenizer: how to learn the vocabulary.
            initial_tokenizer: used in place of one learnt from the corpus (a checkpoint's own).
            positions: that the model has for a sentence and its eos; None: as many as need be.

        Raises:
            InputError: subwords are to be sampled, or the text streamed.
        """
        check_not_streaming(data, "tagging")
        super().__init__(data)
        if tokenizer.sampling:
            raise InputError(
                f"tokenizer.sampling={tokenizer.sampling} does not go with task=tagging, "
                "where a word has one first subword; set tokenizer.sampling=0"
            )
        self._tokenizer_config = replace(tokenizer, joint=True)
        self._initial_tokenizer = initial_tokenizer
        self._positions = positions

    @cached_property
    def _files(self) -> dict[str, Path]:
        data = self._data
        check_unused_keys(data)
        if data.corpus == "pocket":
            if data.source not in LANGUAGES:
                raise InputError(f"data.source={data.source} has no tags in pocket; set en or de")
            return pocket_text(data.source)
        if data.corpus != "files" or data.train is None:
            raise InputError(
                "task=tagging reads pocket, or CoNLL-U: set data=files data.train=A.conllu "
                "data.validation=B.conllu data.test=C.conllu"
            )
        if data.validation is None:
            raise InputError(
                "task=tagging holds no sentences out (data.validation_size, data.test_size); set "
                "data.validation=B.conllu, and data.test=C.conllu where there is a test"
            )
        given = {"train": data.train, "validation": data.validation, "test": data.test}
        return {key: _one_path(key, value) for key, value in given.items() if value is not None}

    def sentences(self, split: str) -> list[TaggedSentence]:
        """Return all sentences of a split.

        Raises:
            InputError: the file cannot be read, a line is malformed, or there is no sentence.
        """
        path = self._files[split]
        read = read_pocket_tags if self._data.corpus == "pocket" else read_conllu
        if sentences := list(read(path, self._data.max_line)):
            return sentences
        raise InputError(f"{path} holds no tagged sentence; give a file in CoNLL-U")

    def training_sentences(self) -> Sequence[TaggedSentence]:
        """Return the sentences of the training text that training uses; raises as `sentences`."""
        return self._training.sentences

    @property
    def splits(self) -> tuple[str, ...]:
        """The evaluation splits there are."""
        return tuple(split for split in self._files if split != "train")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Given, from the cache, or learnt from the words of the training text."""
        if self._initial_tokenizer is not None:
            return self._initial_tokenizer
        texts = [(" ".join(words), "") for words, _ in self.sentences("train")]
        cache = given_path(self._data.cache)
        with locked(cache):
            return Tokenizer.train(
                self._tokenizer_config, lambda: texts, cache, name=self._files["train"]
            )

    def prepare_data(self) -> None:
        """Learn the vocabulary; what cannot be evaluated on is known before, not at the end.

        Raises:
            InputError: text cannot be read, or does not suit vocabulary or model, or too much of
                the training text is left out.
        """
        data = self._data
        check_files_exist(self._files.values())
        evaluated = {split: self.sentences(split) for split in self.splits}
        tokenizer = self.tokenizer
        if not self._judged:
            _ = self._training
            filters = Filters(min(data.max_length, data.batch_tokens - 1), None, data.deduplicate)
            filters.report("train", *self._left, data.max_left_out, "sentences")
            self._judged = True
        if self._positions is None:
            return
        for split, sentences in evaluated.items():
            lengths = TaggedDataset(sentences, tokenizer).lengths()[0].tolist()
            line_of = partial(_line, self._files[split], self._data.max_line)
            check_training_lengths(lengths, self._positions, line_of)

    @cached_property
    def _training(self) -> TaggedDataset:
        return self._dataset("train")

    @cached_property
    def _validation(self) -> TaggedDataset:
        return self._dataset("validation")

    def _dataset(self, split: str) -> TaggedDataset:
        """Leave out what training leaves out: repeated sentences, and those too long for it.

        Raises:
            InputError: the text cannot be read, or nothing of it is left.
        """
        data, sentences = self._data, self.sentences(split)
        read = len(sentences)
        if split == "train" and data.deduplicate:
            sentences = list(dict.fromkeys(sentences))
        dataset = TaggedDataset(sentences, self.tokenizer)
        limit = min(data.max_length, data.batch_tokens - 1)
        usable = dataset.lengths()[0] <= limit
        if not usable.any():
            raise InputError(
                f"{self._files[split]}: every sentence is longer than {limit} tokens; give shorter "
                "ones, or raise data.max_length and data.batch_tokens"
            )
        left, judged = int((~usable).sum()), len(usable)
        if split == "train":
            self._left = Counter(duplicate=read - judged, length=left), read
        if left:
            logger.log(
                logging.INFO if split == "train" else log_level(left, judged),
                "%s: %s of %s sentences, longer than %s tokens, are left out%s",
                *(split, f"{left:,}", f"{judged:,}", limit),
                "" if split == "train" else " of loss and accuracy in training",
            )
            kept = [sentences[index] for index in np.flatnonzero(usable)]
            dataset = TaggedDataset(kept, self.tokenizer)
        return dataset


def _one_path(key: str, given: str | Sequence[str]) -> Path:
    if not isinstance(given, str):
        raise InputError(
            f"data.{key}=[{','.join(given)}] is not one path; task=tagging reads words and tags "
            f"from one file: set data.{key}=FILE.conllu"
        )
    return given_path(given)


def _line(path: Path, max_line: int, position: int) -> str:
    """Say where a sentence stands: file and line, in CoNLL-U that of its first word (ID 1)."""
    lines = enumerate(read_lines(path, max_line), start=1)
    firsts = (number for number, line in lines if line.lstrip("0").startswith("1\t"))
    return f"{path}:{next(islice(firsts, position, None), position + 1)}"
