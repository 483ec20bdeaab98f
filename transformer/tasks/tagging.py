"""Tagging: an encoder classifies each word at its first subword (Devlin et al. 2019, 5.3)."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer.data.batching.batch import TaggedBatch
from transformer.data.datamodules.tagging import TaggingData
from transformer.data.text.conllu import UPOS
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.prediction import Tagger
from transformer.evaluation.tagging_accuracy import tag_scores
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.settings.run import RunConfig
from transformer.tasks.base import Evaluation, Task, single_stack_data
from transformer.training.model_selection import ModelSelection
from transformer.training.update import UpdateModule


class TaggingModule(UpdateModule):
    """Trains an encoder to tag each word at its first subword."""

    model: SingleStack

    @classmethod
    def build_model(cls, config: RunConfig, tokenizer: Tokenizer) -> SingleStack:
        sized = config.model.sized(tokenizer.source_vocab_size, len(UPOS))
        return build_single_stack(sized, causal=False)

    def predictions(self, batch: TaggedBatch) -> tuple[Tensor, Tensor]:
        hidden = self.model(batch.source)
        return hidden.flatten(0, 1).index_select(0, batch.labeled), batch.labels

    def validate(self, hidden: Tensor, target: Tensor) -> None:
        """Count also for ``val/accuracy``, the percentage of words with the right tag."""
        super().validate(hidden, target)
        hits = (self.model.logits(hidden).argmax(-1) == target).sum()
        self.means.add("val/accuracy", 100 * hits, len(target))


class Tagging(Task):
    """The task ``tagging``."""

    data: TaggingData

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        # Its outputs are tags, which share no embeddings, and no sentences are held out.
        tied = config.model.tie_embeddings
        unused: dict[str, Any] = {
            "model.tie_embeddings": tied if tied != "none" else None,
            "tokenizer.sampling": config.tokenizer.sampling,
        }
        if tokenizer is None:
            unused["data.validation_size"] = config.data.validation_size
            unused["data.test_size"] = config.data.test_size
        self.config = config
        self.data = single_stack_data(
            TaggingData, config, tokenizer, experiment="pocket_tagging", unused=unused
        )

    @staticmethod
    def model_selection(config: RunConfig) -> ModelSelection:
        return ModelSelection("val/accuracy", "max")

    @cached_property
    def module(self) -> TaggingModule:
        return TaggingModule(self.config, self.data.tokenizer)

    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        tagger = Tagger.load(checkpoint, device=device, batch_tokens=self.config.data.budget)
        known = {word for words, _ in self.data.training_sentences() for word in words}

        def evaluate(split: str) -> Evaluation:
            sentences = self.data.sentences(split)
            words, references = zip(*sentences, strict=True)
            tags = [tagged.tags for tagged in tagger.tag(words)]
            scores = tag_scores(words, references, tags, known)
            return Evaluation(scores, [" ".join(sentence_tags) for sentence_tags in tags])

        return evaluate
