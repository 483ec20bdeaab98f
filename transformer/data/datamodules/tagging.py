"""Tagged sentences: the first subword of a word has its tag (Devlin et al. 2019, section 5.3)."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path

import numpy as np

from transformer.common.errors import InputError
from transformer.common.files import given_path, locked
from transformer.data.batching.batch import UNTAGGED, TaggedBatch, collate_tagged
from transformer.data.batching.batch_sequence import BatchKey, Lengths, PlannedDataset
from transformer.data.corpora.resolve import pocket_text
from transformer.data.datamodules.base import BatchModule
from transformer.data.text.conllu import UPOS, TaggedSentence, read_conllu
from transformer.data.text.lines import check_files_exist
from transformer.data.text.parallel import read_lines
from transformer.data.text.training_filters import Filters
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.data import check_unused_keys
from transformer.settings.tokenizer import UNK

# Punctuation and the English genitive are words, written without a space before them.
_WRITTEN_TOGETHER = re.compile(r"(?=[.,?!]|'s\b)")


def read_pocket_tags(path: Path, max_line: int | None = None) -> Iterator[TaggedSentence]:
    """Yield the words and tags of a text of `pocket_text`; raises InputError as `read_lines`."""
    tags = read_lines(path.parent / "tags" / path.name, max_line)
    for text, line in zip(read_lines(path, max_line), tags, strict=True):
        words = _WRITTEN_TOGETHER.sub(" ", text).split()
        yield TaggedSentence(tuple(words), tuple(line.split()))


class TaggedDataset(PlannedDataset[TaggedBatch]):
    """Tagged sentences as subwords, in memory."""

    def __init__(self, sentences: Sequence[TaggedSentence], tokenizer: Tokenizer) -> None:
        self.sentences = sentences
        words = list({word for sentence in sentences for word in sentence.words})
        encoded = zip(words, tokenizer.encode_source(words), strict=True)
        # A normalizer of a file may leave nothing of a word.
        subwords = {word: ids or [UNK] for word, ids in encoded}
        self._rows: list[tuple[list[int], list[int]]] = []
        for sentence in sentences:
            ids: list[int] = []
            tags: list[int] = []
            for word, tag in zip(*sentence, strict=True):
                ids += subwords[word]
                tags += [UPOS.index(tag), *[UNTAGGED] * (len(subwords[word]) - 1)]
            self._rows.append((ids, tags))

    def __getitem__(self, key: BatchKey) -> TaggedBatch:
        return collate_tagged(*zip(*(self._rows[index] for index in key.pairs), strict=True))

    def lengths(self) -> Lengths:
        lengths = np.array([len(ids) for ids, _ in self._rows], dtype=np.int64)
        return lengths, lengths


class TaggingData(BatchModule):
    """The tagged text of ``data.source``: pocket's, or the user's CoNLL-U files."""

    @cached_property
    def _files(self) -> dict[str, Path]:
        data = self._data
        check_unused_keys(data)
        if data.corpus == "pocket":
            return pocket_text(data.source)
        named = {"train": data.train, "validation": data.validation, "test": data.test}
        files = {split: path for split, path in named.items() if isinstance(path, str)}
        has_pairs = any(path is not None and split not in files for split, path in named.items())
        if data.corpus != "files" or has_pairs or not {"train", "validation"} <= {*files}:
            raise InputError(
                "task=tagging reads pocket, or a CoNLL-U file a split, and holds no sentences out; "
                "set data=files data.train=A.conllu data.validation=B.conllu, and perhaps "
                "data.test=C.conllu"
            )
        return {split: given_path(path) for split, path in files.items()}

    def sentences(self, split: str) -> list[TaggedSentence]:
        """Return all sentences of a split; raises InputError if there is none."""
        path = self._files[split]
        read = read_pocket_tags if self._data.corpus == "pocket" else read_conllu
        sentences = list(read(path, self._data.max_line))
        if not sentences:
            raise InputError(f"{path} holds no tagged sentence; give a file in CoNLL-U")
        return sentences

    def training_sentences(self) -> Sequence[TaggedSentence]:
        return self._training.sentences

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in self._files if split != "train")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        if self._initial_tokenizer is not None:
            return self._initial_tokenizer
        texts = [(" ".join(words), "") for words, _ in self.sentences("train")]
        config = replace(self._tokenizer_config, joint=True)
        with locked(self._cache):
            return Tokenizer.train(config, lambda: texts, self._cache, name=self._files["train"])

    def prepare_data(self) -> None:
        """Learn the vocabulary, and check that the text fits the model, and enough is kept."""
        data = self._data
        check_files_exist(self._files.values())
        evaluated = {split: self.sentences(split) for split in self.splits}
        tokenizer = self.tokenizer
        if not self._reported:
            _ = self._training  # counts the sentences that are left out
            filters = Filters(min(data.max_length, data.budget - 1), None, data.deduplicate)
            filters.report("train", *self._left_out, self.max_left_out, "sentences")
            self._reported = True
        if self._positions is None:
            return
        for split, sentences in evaluated.items():
            lengths = TaggedDataset(sentences, tokenizer).lengths()[0].tolist()
            line = partial(_line, self._files[split], data.max_line)
            self._check_positions(lengths, line)
        training = self._training
        self._check_positions(
            training.lengths()[0].tolist(),
            lambda index: (
                f"{self._files['train']}: {' '.join(training.sentences[index].words):.60}"
            ),
        )

    @cached_property
    def _training(self) -> TaggedDataset:
        return self._dataset("train")

    @cached_property
    def _validation(self) -> TaggedDataset:
        return self._dataset("validation")

    def _dataset(self, split: str) -> TaggedDataset:
        """Return a split without too long sentences and, in training, without duplicates."""
        sentences = self.sentences(split)
        read = len(sentences)
        if split == "train" and self._data.deduplicate:
            sentences = list(dict.fromkeys(sentences))
        dataset = TaggedDataset(sentences, self.tokenizer)
        usable = self._usable(split, self._files[split], "sentences", dataset.lengths())
        unusable = len(sentences) - len(usable)
        if split == "train":
            dropped = Counter(duplicate=read - len(sentences), length=unusable)
            self._left_out = (dropped, read)
        if not unusable:
            return dataset
        return TaggedDataset([sentences[index] for index in usable], self.tokenizer)


def _line(path: Path, max_line: int, index: int) -> str:
    """Return the file and line of a sentence, in CoNLL-U of its first word (ID 1)."""
    lines = enumerate(read_lines(path, max_line), start=1)
    first_words = (number for number, line in lines if line.lstrip("0").startswith("1\t"))
    return f"{path}:{next(islice(first_words, index, None), index + 1)}"
