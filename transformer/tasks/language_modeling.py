"""Language modeling: a causal stack (Radford et al. 2018, 3.1; Liu et al. 2018, 4.2.3)."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch
from transformer.data.datamodules.language_modeling import MonolingualData
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.prediction import LanguageModel, perplexity
from transformer.evaluation.metrics import Score
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.settings.run import RunConfig
from transformer.tasks.base import Evaluation, Task, single_stack_data
from transformer.training.model_selection import ModelSelection
from transformer.training.update import UpdateModule


class LanguageModule(UpdateModule):
    """Trains a causal stack to predict the next token of the target side."""

    model: SingleStack

    @classmethod
    def build_model(cls, config: RunConfig, tokenizer: Tokenizer) -> SingleStack:
        size = tokenizer.target_vocab_size
        return build_single_stack(config.model.sized(size, size), causal=True)

    def predictions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden = self.model(batch.target_input)
        return hidden.flatten(0, 1).index_select(0, batch.labeled), batch.labels

    def validated(self, means: dict[str, float]) -> dict[str, float]:
        """Log ``val/perplexity`` too, a token."""
        return means | {"val/perplexity": perplexity(means["val/loss"])}


class LanguageModeling(Task):
    """The task ``language_modeling``."""

    data: MonolingualData

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        self.config = config
        self.data = single_stack_data(
            MonolingualData, config, tokenizer, experiment="pocket_lm", unused={}
        )

    @staticmethod
    def model_selection(config: RunConfig) -> ModelSelection:
        return ModelSelection("val/perplexity", "min")

    @cached_property
    def module(self) -> LanguageModule:
        return LanguageModule(self.config, self.data.tokenizer)

    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        tokenizer = self.data.tokenizer
        model = LanguageModel.load(checkpoint, device=device, batch_tokens=self.config.data.budget)

        def evaluate(split: str) -> Evaluation:
            references = self.data.texts(split).references
            texts = [text for sentence_references in references for text in sentence_references]
            # Blank lines, which part paragraphs, are no sentences: training leaves them out.
            sentences = [sentence for sentence in tokenizer.encode_target(texts) if sentence]
            if not sentences:
                raise InputError(f"{split}: all texts are empty; give another")
            words = sum(len(text.split()) for text in texts)
            nll = -sum(
                log_probabilities.double().sum().item()
                for log_probabilities in model.log_probabilities(sentences)
            )
            return Evaluation(perplexities(nll, sentences, words), hypotheses=None)

        return evaluate


def perplexities(nll: float, sentences: Sequence[Sequence[int]], words: int) -> list[Score]:
    """Perplexity per token and per word (which compares any subwords), the ends included."""
    subwords = sum(len(sentence) for sentence in sentences)
    units = {"perplexity": ("subwords", subwords), "word_perplexity": ("words", words)}
    scores = []
    for name, (unit, without_ends) in units.items():
        count = without_ends + len(sentences)
        value = perplexity(nll / count)
        signature = f"per:{unit}+ends|count:{count}"
        fields = {"name": name, "score": round(value, 4), "signature": signature}
        scores.append(Score(name, value, signature, fields, decimals=3))
    return scores
