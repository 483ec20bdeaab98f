"""Tagging as a task: an encoder alone, which classifies each word at its first subword.

The other subwords of a word are read but not classified (Devlin et al. 2019, "BERT", section 5.3).
It does not know how the stack is built, nor where the tags come from.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import torch
from pytorch_lightning import Callback
from torch import Tensor

from transformer.data.batch import UNTAGGED, TaggedBatch
from transformer.data.config import DataConfig
from transformer.data.conllu import UPOS
from transformer.data.sampler import BatchKey, BatchPlan
from transformer.data.tagged import TaggedDataset, TaggingData
from transformer.data.tokenizer import Tokenizer
from transformer.errors import InputError
from transformer.evaluation.tagging import MostFrequentTags, compare_tags
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.training.checkpoint import Criterion
from transformer.training.config import RunConfig, sized_model
from transformer.training.task import (
    Evaluation,
    Task,
    load_single_stack,
    prepared,
    refuse_decoder,
    refuse_second_side,
    refuse_several_corpora,
    sentence_positions,
    update_settings,
)
from transformer.training.update import UpdateModule


class TaggingModule(UpdateModule):
    """Trains an encoder to tag each word at its first subword."""

    model: SingleStack

    def predictions(self, batch: TaggedBatch) -> tuple[Tensor, Tensor]:
        """Hidden states of the first subwords, and the tags of their words."""
        first = batch.tags != UNTAGGED
        return self.model(batch.source)[first], batch.tags[first]

    def validate(self, hidden: Tensor, right: Tensor) -> None:
        """Count also for ``val/accuracy``, the percentage of words with the right tag."""
        super().validate(hidden, right)
        hits = (self.model.logits(hidden).argmax(-1) == right).sum()
        self.means.add("val/accuracy", 100 * hits, len(right))


class Tagging(Task):
    """The task ``tagging``."""

    criterion = Criterion("val/accuracy", "max")
    data: TaggingData

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        refuse_decoder(config, "pocket_tagging")
        refuse_several_corpora(config)
        if config.model["tie_embeddings"] != "none":
            raise InputError(
                f"model.tie_embeddings={config.model['tie_embeddings']} needs words at both ends, "
                "but a tagger's outputs are tags; set model.tie_embeddings=none"
            )
        if tokenizer is None:
            refuse_second_side(config)
            _refuse_held_out(config.data)
        self.config = config
        self.data = TaggingData(
            config.data,
            config.tokenizer,
            initial_tokenizer=tokenizer,
            positions=sentence_positions(config),
        )

    @cached_property
    def module(self) -> TaggingModule:
        """The encoder and its training step."""
        tokenizer = self.data.tokenizer
        config = sized_model(self.config.model, tokenizer.source_vocab_size, len(UPOS))
        model = build_single_stack(config, causal=False)
        module = TaggingModule(model, **update_settings(self.config, config, tokenizer))
        return prepared(module, self.config)

    def callbacks(self) -> Sequence[Callback]:
        """None: the batches of a validation say it all."""
        return []

    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        """Tag and compare."""
        model = load_single_stack(checkpoint, device, causal=False)
        training = MostFrequentTags(self.data.training_sentences())

        def evaluate(split: str) -> Evaluation:
            sentences = self.data.sentences(split)
            words, right = zip(*sentences, strict=True)
            dataset = TaggedDataset(sentences, self.data.tokenizer)
            given = tag(model, dataset, self.config.data.batch_tokens)
            compared = compare_tags(words, right, given, training)
            return Evaluation(compared.scores(), list(map(" ".join, given)), [compared.table()])

        return evaluate


def _refuse_held_out(data: DataConfig) -> None:
    for key in ("validation_size", "test_size"):
        if getattr(data, key):
            raise InputError(
                f"data.{key}={getattr(data, key)} has no meaning with task=tagging, which holds no "
                f"sentences out; set data.{key}=0, and give data.validation=FILE data.test=FILE"
            )


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
