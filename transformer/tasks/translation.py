"""Text to text as a task: sentence pairs, an encoder-decoder, scores of its real output."""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.errors import InputError
from transformer.common.escaping import escaped, shortened
from transformer.data.corpora.evaluation_text import Texts
from transformer.data.datamodules.translation import DataModule
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import guided_head
from transformer.decoding.long_inputs import SourceLimits, warn_about_length_limit
from transformer.decoding.translation.document_translator import DocumentTranslator, in_documents
from transformer.decoding.translation.result import length_counts
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import build_metric, score
from transformer.model.build import build_transformer
from transformer.quality.failures.flags import Detector, Output
from transformer.quality.failures.monitor import as_outputs, find_failures
from transformer.settings.metrics import METRICS, MetricsConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig
from transformer.tasks.base import Evaluation, Task, build_module, check_no_noise
from transformer.tasks.translation_module import TranslationModule
from transformer.training.callbacks.progress import shown_update
from transformer.training.model_selection import ModelSelection, best_by_text
from transformer.training.precision import resolve_precision, search_autocast

logger = logging.getLogger(__name__)

_SHOWN = 200


class TranslationTask(Task):
    """The task ``translation``."""

    data: DataModule
    module_class: type[TranslationModule] = TranslationModule

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        self.config = config
        check_no_noise(config)
        for name in {*config.metrics.tested, *config.metrics.validated}:
            build_metric(name, config.metrics)  # an error now is better than after training
        kind: type[DataModule] = DataModule
        if config.data.streaming:
            from transformer.data.datamodules.streaming import StreamData

            kind = StreamData
        self.data = kind(
            config.data,
            config.tokenizer,
            initial_tokenizer=tokenizer,
            links=config.loss.alignment_weight > 0,
            augmentation=config.augmentation,
        )

    @staticmethod
    def model_selection(config: RunConfig) -> ModelSelection:
        return best_by_text(config.metrics)

    @classmethod
    def validation_metrics(cls, config: RunConfig) -> list[str]:
        return ["val/loss", *(f"val/{name}" for name in config.metrics.validated)]

    @cached_property
    def module(self) -> TranslationModule:
        tokenizer = self.data.tokenizer
        model = build_transformer(model_config(self.config, tokenizer))
        longest = self.data.longest_source()
        return build_module(self.module_class, model, self.config, tokenizer, longest)

    def callbacks(self) -> Sequence[Callback]:
        config, model = self.config, self.module.model
        longest = self.module.portable.longest_source
        translator = Translator(
            model,
            self.data.tokenizer,
            config.decoding,
            batch_tokens=self._search_tokens,
            coverage_head=guided_head(config.loss, model.config),
            limits=SourceLimits.trained(config, longest),
        )
        texts, samples = self.data.texts("validation"), config.callbacks.samples
        return [
            TranslateValidation(in_documents(translator), texts, samples, metrics=config.metrics)
        ]

    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        config = self.config
        translator = Translator.load(
            checkpoint, search=config.decoding, batch_tokens=self._search_tokens, device=device
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

    @property
    def _search_tokens(self) -> int:
        return self.config.trainer.search_tokens or self.config.data.budget


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

    def __init__(
        self,
        translator: Translator | DocumentTranslator,
        texts: Texts,
        samples: int,
        *,
        metrics: MetricsConfig,
    ) -> None:
        self.translator = translator
        self.sources, self.references, self.ranges = texts
        self.samples, self.metrics = samples, metrics
        self.latest: ValidationOutputs | None = None
        """The outputs of the latest validation."""

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
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


def model_config(config: RunConfig, tokenizer: Tokenizer) -> ModelConfig:
    """The user's model, sized by the tokenizer; raises InputError if they do not fit."""
    if not tokenizer.same_ids and config.model.tie_embeddings == "all":
        raise InputError(
            "model.tie_embeddings=all needs one vocabulary for both sides; "
            "set tokenizer.joint=true or model.tie_embeddings=decoder"
        )
    return config.model.sized(tokenizer.source_vocab_size, tokenizer.target_vocab_size)
