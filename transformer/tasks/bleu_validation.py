"""Translates and scores the validation text during training.

It changes no weights, and does not know the corpora: it is given their text.
"""

import logging
from collections.abc import Mapping

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.escaping import escaped
from transformer.decoding.translation.document_translator import DocumentTranslator
from transformer.decoding.translation.length_limit import warn_about_length_limit
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import MetricsConfig, score
from transformer.training.callbacks.progress import shown_update

logger = logging.getLogger(__name__)


class TranslateValidation(Callback):
    """Logs ``val/bleu`` and ``val/chrf`` of real translations, text against text.

    With several corpora it also logs ``val/bleu_NAME`` of each. Each rank translates a part of the
    sentences. It runs at the start of a validation, when a moving average has replaced the weights.
    """

    def __init__(
        self,
        translator: Translator | DocumentTranslator,
        sources: list[str],
        references: list[str],
        samples: int,
        ranges: Mapping[str, range] | None = None,
        *,
        metrics: MetricsConfig,
    ) -> None:
        self.translator = translator
        self.sources = sources
        self.references = references
        self.samples = samples
        self.ranges = ranges or {}
        self.metrics = metrics

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Translate, score, log, show samples."""
        hypotheses = self._translate(trainer)
        bleu, chrf = score(hypotheses, self.references, ("bleu", "chrf"), config=self.metrics)
        values = {"val/bleu": bleu.value, "val/chrf": chrf.value}
        for name, part in self.ranges.items():
            own = slice(part.start, part.stop)
            texts = hypotheses[own], self.references[own]
            (of_part,) = score(*texts, ("bleu",), config=self.metrics)
            values[f"val/bleu_{name}"] = of_part.value
        pl_module.log_dict(values, rank_zero_only=False)
        if not trainer.is_global_zero:
            return
        epochs = trainer.datamodule.epochs(trainer.global_step)  # type: ignore[attr-defined]
        update = shown_update(trainer.global_step, epochs)
        logger.info("%s: BLEU %.2f, chrF %.2f", update, bleu.value, chrf.value)
        for name in self.ranges:
            logger.info("  %s: BLEU %.2f", name, values[f"val/bleu_{name}"])
        for index in range(min(self.samples, len(self.sources))):
            logger.info(
                "  %s => %s (reference: %s)",
                *map(escaped, (one[index] for one in (self.sources, hypotheses, self.references))),
            )

    def _translate(self, trainer: Trainer) -> list[str]:
        rank, world_size = trainer.global_rank, trainer.world_size
        windows = self.translator.windows(self.sources)
        found = self.translator.translate_windows(self.sources, windows[rank::world_size])
        texts = [one.text for window in found for one in window]
        parts = [(texts, self.translator.length_limit.pop_counts())] * world_size
        if world_size > 1:
            torch.distributed.all_gather_object(parts, parts[rank])
        if trainer.is_global_zero:
            warn_about_length_limit(counts for _, counts in parts)
        hypotheses = [""] * len(self.sources)
        for other_rank, (texts, _) in enumerate(parts):
            indices = (index for window in windows[other_rank::world_size] for index in window)
            for index, text in zip(indices, texts, strict=True):
                hypotheses[index] = text
        return hypotheses
