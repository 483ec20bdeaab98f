"""Tagging as a task: an encoder alone, which classifies each word at its first subword.

Words are cut into subwords one by one; the other subwords of a word are read but not classified
(Devlin et al. 2019, "BERT", section 5.3). The tags are the Universal ones. It does not know how
the stack is built, nor how CoNLL-U is read.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from pytorch_lightning import Callback
from torch import Tensor

from transformer.data.batch import UNTAGGED, TaggedBatch, collate_tagged
from transformer.data.batch_module import BatchModule
from transformer.data.cache import locked
from transformer.data.conllu import UPOS, TaggedSentence, read_conllu
from transformer.data.dataset import PlannedDataset
from transformer.data.sampler import BatchKey, BatchPlan
from transformer.data.splits import POCKET_SPLITS, pocket_folder
from transformer.data.tokenizer import PAD, UNK, Tokenizer
from transformer.errors import InputError
from transformer.evaluation.tagging import MostFrequentTags, compare_tags
from transformer.model.config import ModelConfig
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.training.checkpoint import Criterion
from transformer.training.config import RunConfig
from transformer.training.task import (
    Evaluation,
    Task,
    load_single_stack,
    refuse_decoder,
    update_settings,
)
from transformer.training.typed import typed
from transformer.training.update import UpdateModule

logger = logging.getLogger(__name__)


class TaggedDataset(PlannedDataset[TaggedBatch]):
    """Tagged sentences as subwords, in memory."""

    def __init__(self, sentences: Sequence[TaggedSentence], tokenizer: Tokenizer) -> None:
        """Cut each word into subwords; a word that has none, such as a space, is unknown."""
        words = list({word for sentence in sentences for word in sentence.words})
        subwords = dict(zip(words, tokenizer.encode_source(words), strict=True))
        self._pieces: list[list[int]] = []
        self._tags: list[list[int]] = []
        for sentence in sentences:
            pieces: list[int] = []
            tags: list[int] = []
            for word, tag in zip(*sentence, strict=True):
                cut = subwords[word] or [UNK]
                pieces += cut
                tags += [UPOS.index(tag), *[UNTAGGED] * (len(cut) - 1)]
            self._pieces.append(pieces)
            self._tags.append(tags)

    def __getitem__(self, key: BatchKey) -> TaggedBatch:
        rows = [(self._pieces[index], self._tags[index]) for index in key.pairs]
        return collate_tagged(*zip(*rows, strict=True))

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the subwords of each sentence, twice: there is one side."""
        lengths = np.array([len(pieces) for pieces in self._pieces], dtype=np.int64)
        return lengths, lengths


class TaggingData(BatchModule):
    """The tagged text of ``data.source``: pocket's, or the user's CoNLL-U files."""

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None) -> None:
        super().__init__(config.data)
        if config.tokenizer.sampling:
            raise InputError(
                f"tokenizer.sampling={config.tokenizer.sampling} does not go with task=tagging, "
                "where a word has one first subword; set tokenizer.sampling=0"
            )
        self._tokenizer_config = replace(config.tokenizer, joint=True)
        self._initial_tokenizer = tokenizer

    @cached_property
    def _files(self) -> dict[str, Path]:
        data = self._data
        if data.corpus == "pocket":
            if data.source not in ("en", "de"):
                raise InputError(f"data.source={data.source} has no tags in pocket; set en or de")
            folder = pocket_folder(Path(data.cache).expanduser())
            return {split: folder / f"{split}.{data.source}.conllu" for split in POCKET_SPLITS}
        given = {"train": data.train, "validation": data.validation, "test": data.test}
        files = {split: Path(path) for split, path in given.items() if isinstance(path, str)}
        if data.corpus != "files" or not {"train", "validation"} <= files.keys():
            raise InputError(
                "task=tagging reads pocket, or CoNLL-U: set data=files data.train=A.conllu "
                "data.validation=B.conllu data.test=C.conllu"
            )
        return files

    def sentences(self, split: str) -> list[TaggedSentence]:
        """Return all sentences of a split.

        Raises:
            InputError: the file cannot be read, a line is malformed, or there is no sentence.
        """
        path = self._files[split]
        if sentences := list(read_conllu(path)):
            return sentences
        raise InputError(f"{path} holds no tagged sentence; give a file in CoNLL-U")

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
        cache = Path(self._data.cache).expanduser()
        with locked(cache):
            return Tokenizer.train(self._tokenizer_config, lambda: texts, cache)

    def prepare_data(self) -> None:
        """Learn the vocabulary; a test that cannot be read is known before, not at the end."""
        for split in self.splits:
            self.sentences(split)
        _ = self.tokenizer

    @cached_property
    def _training(self) -> TaggedDataset:
        return self._dataset("train")

    @cached_property
    def _validation(self) -> TaggedDataset:
        return self._dataset("validation")

    def _dataset(self, split: str) -> TaggedDataset:
        """Leave out what training leaves out: repeated sentences, and those too long for it."""
        data, sentences = self._data, self.sentences(split)
        if split == "train" and data.deduplicate:
            sentences = list(dict.fromkeys(sentences))
        dataset = TaggedDataset(sentences, self.tokenizer)
        usable = dataset.lengths()[0] <= min(data.max_length, data.batch_tokens - 1)
        if not usable.all():
            logger.info("%s: %d sentences are too long", split, (~usable).sum())
            kept = [sentences[index] for index in np.flatnonzero(usable)]
            dataset = TaggedDataset(kept, self.tokenizer)
        return dataset


class TaggingModule(UpdateModule):
    """Trains an encoder to tag each word at its first subword."""

    model: SingleStack

    def predictions(self, batch: TaggedBatch) -> tuple[Tensor, Tensor]:
        """Hidden states of the first subwords, and the tags of their words."""
        first = batch.tags != UNTAGGED
        return self.model(batch.source)[first], batch.tags[first]

    def validation_step(self, batch: TaggedBatch, batch_index: int) -> None:
        """Log loss and ``val/accuracy``, the percentage of words with the right tag."""
        hidden, tags = self.predictions(batch)
        self.log_likelihood(hidden, tags)
        right = (self.model.logits(hidden).argmax(-1) == tags).float().mean()
        self.log("val/accuracy", 100 * right, batch_size=len(tags), sync_dist=True)


class Tagging(Task):
    """The task ``tagging``."""

    criterion = Criterion("val/accuracy", "max")
    data: TaggingData

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        refuse_decoder(config, "pocket_tagging")
        if config.model["tie_embeddings"] != "none":
            raise InputError(
                f"model.tie_embeddings={config.model['tie_embeddings']} needs words at both ends, "
                "but a tagger's outputs are tags; set model.tie_embeddings=none"
            )
        self.config = config
        self.data = TaggingData(config, tokenizer)

    @cached_property
    def module(self) -> TaggingModule:
        """The encoder and its training step."""
        tokenizer = self.data.tokenizer
        vocabulary = tokenizer.source_vocab_size
        sizes = {"source_vocab_size": vocabulary, "target_vocab_size": len(UPOS), "pad": PAD}
        config = typed(ModelConfig, {**self.config.model, **sizes}, "model")
        model = build_single_stack(config, causal=False)
        return TaggingModule(model, **update_settings(self.config, config, tokenizer))

    def callbacks(self) -> Sequence[Callback]:
        """None: the batches of a validation say it all."""
        return []

    def evaluator(
        self, checkpoint: Path, device: torch.device | str = "cpu"
    ) -> Callable[[str], Evaluation]:
        """Tag and compare."""
        model = load_single_stack(checkpoint, device, causal=False)
        training = MostFrequentTags(self.data.sentences("train"))

        def evaluate(split: str) -> Evaluation:
            words, right = zip(*self.data.sentences(split), strict=True)
            dataset = TaggedDataset(self.data.sentences(split), self.data.tokenizer)
            given = tag(model, dataset, self.config.data.batch_tokens)
            compared = compare_tags(words, right, given, training)
            return Evaluation(compared.scores(), list(map(" ".join, given)), [compared.table()])

        return evaluate


@torch.inference_mode()
def tag(model: SingleStack, dataset: TaggedDataset, batch_tokens: int) -> list[list[str]]:
    """Return the tags of each sentence, in the order of the dataset.

    Args:
        model: In evaluation mode.
        dataset: Its own tags say only where words begin.
        batch_tokens: Budget of a batch; a longer sentence makes a batch alone.
    """
    lengths = dataset.lengths()
    budget = max(batch_tokens, int(lengths[0].max()) + 1)
    batches = BatchPlan(*lengths, batch_tokens=budget, shuffle=False).epoch(0)
    given: list[list[str]] = [[] for _ in lengths[0]]
    for index in range(len(batches)):
        batch = dataset[BatchKey(0, batches[index])].to(model.projection.weight.device)
        best = model.logits(model(batch.source)).argmax(-1)
        for pair, row, tags in zip(batches[index], best, batch.tags, strict=True):
            given[pair] = [UPOS[place] for place in row[tags != UNTAGGED].tolist()]
    return given
