"""Language modelling as a task: a causal stack on the target side, perplexity, n-gram baselines.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.1; Liu
et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", section 4.2.3.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from transformer.data.batching.batch import Batch
from transformer.data.modules.language_modelling import MonolingualData
from transformer.data.tokenization.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer.decoding.prediction.language_model import LanguageModel, perplexity
from transformer.evaluation.metrics import Score
from transformer.evaluation.ngram_baseline import KneserNey
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.tasks.base import Evaluation, Task, build_module, single_stack_data
from transformer.training.checkpointing.checkpoint_io import Criterion
from transformer.training.config import RunConfig, sized_model
from transformer.training.step.update_module import UpdateModule

_BASELINES = {"unigram": 1, "5gram": 5}
"""Orders of the n-gram models that perplexity is compared with."""

_BASELINE_SENTENCES = 200_000
"""Maximum training sentences of a baseline, which holds every n-gram in memory."""


class LanguageModule(UpdateModule):
    """Trains a causal stack to predict the next token of the target side."""

    model: SingleStack

    def predictions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states before each real target token, and these tokens."""
        hidden = self.model(batch.target_input)
        return hidden.flatten(0, 1).index_select(0, batch.labelled), batch.labels

    def validated(self, means: dict[str, float]) -> dict[str, float]:
        """Log ``val/perplexity`` too, a token."""
        return means | {"val/perplexity": perplexity(means["val/loss"])}


class LanguageModelling(Task):
    """The task ``language_modelling``."""

    data: MonolingualData

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        self.config = config
        self.data = single_stack_data(
            MonolingualData, config, tokenizer, experiment="pocket_lm", unused={}
        )

    @staticmethod
    def criterion(config: RunConfig) -> Criterion:
        return Criterion("val/perplexity", "min")

    @cached_property
    def module(self) -> LanguageModule:
        tokenizer = self.data.tokenizer
        size = tokenizer.target_vocab_size
        config = sized_model(self.config.model, size, size)
        model = build_single_stack(config, causal=True)
        return build_module(LanguageModule, model, self.config, tokenizer)

    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        """Compute perplexities of the model and of the baselines, on the same tokens."""
        budget, tokenizer = self.config.data.batch_tokens, self.data.tokenizer
        model = LanguageModel.load(checkpoint, device=device, batch_tokens=budget)
        known = self.data.training_targets(_BASELINE_SENTENCES)
        outcomes = tokenizer.target_vocab_size - len((PAD, BOS))  # PAD and BOS are never predicted
        baselines = {
            name: KneserNey(known, order=order, vocab_size=outcomes, bos=BOS, eos=EOS)
            for name, order in _BASELINES.items()
        }

        def evaluate(split: str) -> Evaluation:
            texts = [one for every in self.data.texts(split).references for one in every]
            sentences = tokenizer.encode_target(texts)
            words = sum(len(text.split()) for text in texts)
            nll = -sum(each.double().sum().item() for each in model.log_probabilities(sentences))
            scores = perplexities("", nll, sentences, words, "")
            signature = f"|kneser-ney:interpolated|sentences:{len(known)}"
            for name, baseline in baselines.items():
                nll = baseline.nll(sentences)
                scores += perplexities(f"{name}_", nll, sentences, words, signature)
            return Evaluation(scores, hypotheses=None)

        return evaluate


def perplexities(
    prefix: str, nll: float, sentences: Sequence[Sequence[int]], words: int, signature: str
) -> list[Score]:
    """Perplexity per token and per word, of one likelihood.

    Only that per word compares models of different subwords. An end counts as token and as word.
    """
    ends, tokens = len(sentences), sum(map(len, sentences))
    counts = {"perplexity": ("subwords", tokens), "word_perplexity": ("words", words)}
    scores = []
    for name, (unit, without_ends) in counts.items():
        count = without_ends + ends
        value = perplexity(nll / count)
        full = f"per:{unit}+ends|count:{count}{signature}"
        fields = {"name": prefix + name, "score": round(value, 4), "signature": full}
        scores.append(Score(prefix + name, value, full, fields, decimals=3))
    return scores
