"""Scores of real translations at each validation, and samples of them in the log."""

import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.escaping import escaped, shortened
from transformer.decoding.document_translator import DocumentTranslator, in_documents
from transformer.decoding.long_inputs import warn_about_length_limit
from transformer.decoding.translator import Translator, length_counts
from transformer.evaluation.metrics import score
from transformer.quality.failures.flags import Output
from transformer.quality.failures.monitor import as_outputs
from transformer.settings.metrics import METRICS, MetricsConfig
from transformer.training.callbacks.progress import shown_update
from transformer.training.precision import search_autocast

logger = logging.getLogger(__name__)

_SHOWN = 200


class ValidationOutputs(NamedTuple):
    """The text of a validation and the model's real outputs, one of each for each sentence."""

    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    outputs: Sequence[Output]


class TranslateValidation(Callback):
    """Logs ``val/METRIC`` of real translations, and ``val/METRIC_NAME`` of each of several corpora.

    Each rank translates a part of the sentences, when a moving average has replaced the weights.
    Later hooks of other callbacks find all outputs in ``latest``, on every rank.
    """

    translator: Translator | DocumentTranslator
    references: Sequence[Sequence[str]]
    ranges: Mapping[str, range]

    def __init__(self, metrics: MetricsConfig, samples: int) -> None:
        self.metrics, self.samples = metrics, samples
        self.sources: Sequence[str] = ()
        self.latest: ValidationOutputs | None = None
        """The outputs of the latest validation."""

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Take the model and the text of the first validation."""
        if self.sources:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        self.translator = in_documents(pl_module.translator())
        self.sources, self.references, self.ranges = data.texts("validation")

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        outputs = self._translate(trainer)
        self.latest = ValidationOutputs(self.sources, self.references, outputs)
        hypotheses = [output.text for output in outputs]
        parts = {"": slice(None)}
        parts |= {f"_{name}": slice(part.start, part.stop) for name, part in self.ranges.items()}
        found = {name: self._scores(hypotheses, lines) for name, lines in parts.items()}
        values = {f"val/{k}{name}": v for name, own in found.items() for k, v in own.items()}
        pl_module.log_dict(values, rank_zero_only=False)
        if not trainer.is_global_zero:
            return
        epochs = trainer.datamodule.epochs(trainer.global_step)  # type: ignore[attr-defined]
        update = shown_update(trainer.global_step, epochs)
        for name, own in found.items():
            shown = (f"{METRICS[key].label} {value:.2f}" for key, value in own.items())
            logger.info("%s: %s", f"  {name[1:]}" if name else update, ", ".join(shown))
        lines = zip(self.sources, hypotheses, self.references, strict=True)
        for sample in islice(lines, max(0, self.samples)):
            texts = (
                escaped(shortened(one, _SHOWN)) for one in (*sample[:2], " | ".join(sample[2]))
            )
            logger.info("  %s => %s (reference: %s)", *texts)

    def _scores(self, hypotheses: list[str], lines: slice) -> dict[str, float]:
        names = self.metrics.validated
        texts = hypotheses[lines], self.references[lines], names
        found = score(*texts, config=self.metrics, sources=self.sources[lines])
        return {name: one.value for name, one in zip(names, found, strict=True)}

    def _translate(self, trainer: Trainer) -> list[Output]:
        rank, world_size = trainer.global_rank, trainer.world_size
        windows = self.translator.windows(self.sources)
        with search_autocast(trainer.precision, trainer.strategy.root_device):
            found = self.translator.translate_windows(self.sources, windows[rank::world_size])
        translations = [one for window in found for one in window]
        own = as_outputs(translations, self.translator)
        parts = [(own, length_counts(translations))] * world_size
        if world_size > 1:
            torch.distributed.all_gather_object(parts, parts[rank])
        if trainer.is_global_zero:
            warn_about_length_limit(counts for _, counts in parts)
        outputs = [Output("")] * len(self.sources)
        for other_rank, (found_there, _) in enumerate(parts):
            indices = (index for window in windows[other_rank::world_size] for index in window)
            for index, output in zip(indices, found_there, strict=True):
                outputs[index] = output
        return outputs
