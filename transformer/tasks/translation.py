"""Text to text as a task: sentence pairs, an encoder-decoder, scores of its real output."""

import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import torch

from transformer.data.datamodules.translation import TranslationData
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.document_translator import in_documents
from transformer.decoding.long_inputs import warn_about_length_limit
from transformer.decoding.translator import Translator, length_counts
from transformer.evaluation.metrics import build_metric, score
from transformer.quality.failures.flags import Detector
from transformer.quality.failures.monitor import as_outputs, find_failures
from transformer.settings.run import RunConfig
from transformer.tasks.base import Evaluation, Task, check_no_noise
from transformer.tasks.translation_module import TranslationModule, search_tokens
from transformer.training.model_selection import ModelSelection, best_by_text
from transformer.training.precision import resolve_precision, search_autocast

logger = logging.getLogger(__name__)

_SHOWN = 200


class TranslationTask(Task):
    """The task ``translation``."""

    data: TranslationData
    module_class: type[TranslationModule] = TranslationModule

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        self.config = config
        check_no_noise(config)
        for name in {*config.metrics.tested, *config.metrics.validated}:
            build_metric(name, config.metrics)  # an error now is better than after training
        self.data = TranslationData(config, tokenizer)

    @staticmethod
    def model_selection(config: RunConfig) -> ModelSelection:
        return best_by_text(config.metrics)

    @classmethod
    def validation_metrics(cls, config: RunConfig) -> list[str]:
        return ["val/loss", *(f"val/{name}" for name in config.metrics.validated)]

    @cached_property
    def module(self) -> TranslationModule:
        return self.module_class(self.config, self.data.tokenizer)

    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        config = self.config
        translator = Translator.load(
            checkpoint, search=config.decoding, batch_tokens=search_tokens(config), device=device
        )
        precision = resolve_precision(config.trainer).precision
        detector = Detector.load(checkpoint, config.data)

        def evaluate(split: str) -> Evaluation:
            texts = self.data.texts(split)
            by_sentence = in_documents(translator)
            with search_autocast(precision, translator.device):
                found = by_sentence.translate(texts.sources)
            warn_about_length_limit([length_counts(found)])
            failures = find_failures(detector, *texts[:2], as_outputs(found, by_sentence))
            hypotheses = [translation.text for translation in found]
            scores = score(
                hypotheses, texts.references, config=config.metrics, sources=texts.sources
            )
            return Evaluation(scores, hypotheses, failures=failures)

        return evaluate
