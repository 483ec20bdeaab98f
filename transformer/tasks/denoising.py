"""Denoising: an encoder-decoder learns plain text (Raffel et al. 2020; Lewis et al. 2020)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from pytorch_lightning import Callback

from transformer.common.errors import InputError
from transformer.data.datamodules.denoising import DenoisingData
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.forced_decoding import score_subwords
from transformer.decoding.prediction import perplexity
from transformer.decoding.translator import Translator
from transformer.evaluation.metrics import Score
from transformer.settings.run import RunConfig
from transformer.tasks.base import TRANSLATION_DATA, Evaluation
from transformer.tasks.translation import TranslateValidation, TranslationModule, TranslationTask
from transformer.training.model_selection import ModelSelection


class DenoisingModule(TranslationModule):
    """Trains an encoder-decoder by denoising; a validation translates nothing."""

    def configure_callbacks(self) -> Sequence[Callback]:
        callbacks = super().configure_callbacks()
        return [callback for callback in callbacks if not isinstance(callback, TranslateValidation)]


class Denoising(TranslationTask):
    """The task ``denoising``: translation from a text with noise, scored by its loss."""

    data: DenoisingData
    module_class = DenoisingModule

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        keys = {f"data.{key}": getattr(config.data, key) for key in TRANSLATION_DATA}
        keys["loss.alignment_weight"] = config.loss.alignment_weight
        keys["augmentation"] = "robust" if config.augmentation.active else None
        unused = " ".join(f"{key}={value}" for key, value in keys.items() if value)
        if unused:
            raise InputError(f"task=denoising reads one text, and not {unused}; leave that out")
        self.config = config
        self.data = DenoisingData(config, tokenizer)

    @staticmethod
    def model_selection(config: RunConfig) -> ModelSelection:
        return ModelSelection("val/loss", "min")

    @classmethod
    def validation_metrics(cls, config: RunConfig) -> list[str]:
        return ["val/loss"]

    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        model = Translator.load(checkpoint, device=device).model

        def evaluate(split: str) -> Evaluation:
            scores = score_subwords(model, self.data.noisy(split), self.config.data.budget)
            count = sum(len(log_probabilities) for log_probabilities in scores)
            nll = -sum(sum(log_probabilities) for log_probabilities in scores)
            value = perplexity(nll / count)
            noise = self.config.data.denoising
            signature = f"per:subwords+ends|count:{count}|{noise.objective}:{noise.density:g}"
            fields = {"name": "perplexity", "score": round(value, 4), "signature": signature}
            return Evaluation([Score("perplexity", value, signature, fields, decimals=3)], None)

        return evaluate
