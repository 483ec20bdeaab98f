"""Tagging as a task: an encoder alone, which classifies each word at its first subword.

The other subwords of a word are read but not classified (Devlin et al. 2019, "BERT", section 5.3).
It does not know how the stack is built, nor where the tags come from.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import torch
from pytorch_lightning import Callback
from torch import Tensor

from transformer.common.errors import raise_objections
from transformer.data.batching.tagged_batch import UNTAGGED, TaggedBatch
from transformer.data.config import DataConfig
from transformer.data.modules.tagging import TaggingData
from transformer.data.text.conllu import UPOS
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.prediction.tagger import Tagger
from transformer.evaluation.tagging_accuracy import MostFrequentTags, compare_tags
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.report.tagging import confusion_table
from transformer.tasks.base import (
    Evaluation,
    Task,
    decoder_objections,
    prepared,
    second_side_objections,
    sentence_positions,
    translation_objections,
    update_settings,
)
from transformer.training.checkpointing.checkpoint_io import Criterion
from transformer.training.config import RunConfig, sized_model
from transformer.training.step.update_module import UpdateModule


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
        raise_objections(
            (
                *decoder_objections(config, "pocket_tagging"),
                *translation_objections(config),
                *_tying_objections(config),
                *(second_side_objections(config) if tokenizer is None else ()),
                *(_held_out_objections(config.data) if tokenizer is None else ()),
            )
        )
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
        tagger = Tagger.load(checkpoint, device=device, batch_tokens=self.config.data.batch_tokens)
        training = MostFrequentTags(self.data.training_sentences())

        def evaluate(split: str) -> Evaluation:
            sentences = self.data.sentences(split)
            words, right = zip(*sentences, strict=True)
            given = [found.tags for found in tagger.tag(words)]
            compared = compare_tags(words, right, given, training)
            return Evaluation(
                compared.scores(), list(map(" ".join, given)), [confusion_table(compared)]
            )

        return evaluate


def _tying_objections(config: RunConfig) -> Iterator[str]:
    if config.model["tie_embeddings"] != "none":
        yield (
            f"model.tie_embeddings={config.model['tie_embeddings']} needs words at both ends, "
            "but a tagger's outputs are tags; set model.tie_embeddings=none"
        )


def _held_out_objections(data: DataConfig) -> Iterator[str]:
    for key in ("validation_size", "test_size"):
        if getattr(data, key):
            yield (
                f"data.{key}={getattr(data, key)} has no meaning with task=tagging, which holds no "
                f"sentences out; set data.{key}=0, and give data.validation=FILE data.test=FILE"
            )
