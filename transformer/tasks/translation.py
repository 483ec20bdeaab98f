"""Translation: the loss of sentence pairs, scores of real output at validation, and the task."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from transformer.common.errors import InputError
from transformer.common.escaping import escaped, shortened
from transformer.data.batching.batch import Batch
from transformer.data.datamodules.base import BatchModule
from transformer.data.datamodules.translation import TranslationData
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import HeadName, guided_head
from transformer.decoding.document_translator import DocumentTranslator, in_documents
from transformer.decoding.long_inputs import SourceLimits, warn_about_length_limit
from transformer.decoding.translator import Translator, length_counts
from transformer.evaluation.metrics import build_metric, score
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.build import build_transformer
from transformer.model.decoder import DecoderLayer
from transformer.model.transformer import Transformer
from transformer.quality.failures.flags import Detector, Output
from transformer.quality.failures.monitor import as_outputs, find_failures
from transformer.settings.metrics import METRICS, MetricsConfig
from transformer.settings.run import RunConfig
from transformer.tasks.base import Evaluation, Task, check_no_noise
from transformer.training.callbacks.metrics import Measure
from transformer.training.callbacks.progress import shown_update
from transformer.training.losses.cross_entropy import joined_bias
from transformer.training.losses.guided_alignment import alignment_loss, watching
from transformer.training.losses.r_drop import r_drop_loss
from transformer.training.model_selection import ModelSelection, best_by_text
from transformer.training.precision import resolve_precision, search_autocast
from transformer.training.update import UpdateModule

logger = logging.getLogger(__name__)

_MAX_SHOWN = 200
"""Characters of a text in the log."""


class TranslationModule(UpdateModule):
    """Trains a ``Transformer`` by teacher forcing; InputError if alignment has no fixed head."""

    model: Transformer

    def __init__(
        self, config: RunConfig, tokenizer: Tokenizer, *, model: Transformer | None = None
    ) -> None:
        super().__init__(config, tokenizer, model=model)
        shared = self.model.config.share_layers in ("all", "attention")
        if self.guided is not None and self.model.config.layer_drop and shared:
            raise InputError(
                f"loss.alignment_weight guides one layer, which model.layer_drop="
                f"{self.model.config.layer_drop} moves among layers that share their attention; "
                "set model.layer_drop=0 or model.share_layers=none"
            )

    @classmethod
    def build_model(cls, config: RunConfig, tokenizer: Tokenizer) -> Transformer:
        tied = config.model.tie_embeddings
        if not tokenizer.same_ids and tied in ("all", "inputs"):
            raise InputError(
                f"model.tie_embeddings={tied} needs one vocabulary for both sides; "
                "set tokenizer.joint=true or model.tie_embeddings=decoder"
            )
        sized = config.model.sized(tokenizer.source_vocab_size, tokenizer.target_vocab_size)
        return build_transformer(sized)

    def predictions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states and tokens of the real target positions, side by side."""
        hidden = self.model(batch.source, batch.target_input)
        # batch target width -> (batch target) width -> token width
        return hidden.flatten(0, 1).index_select(0, batch.labeled), batch.labels

    def micro_loss(self, batch: Batch) -> tuple[Tensor, int, dict[str, Tensor]]:
        if self.config.loss.consistency != "none":
            return self._r_drop_loss(batch)
        if self.guided is None:
            return super().micro_loss(batch)
        assert batch.alignment is not None  # the data of such a config have links
        with watching(self.model, self.guided) as recorded:
            loss, tokens, sums = super().micro_loss(batch)
        sums["alignment"] = torch.zeros(2, device=loss.device)
        for weights in recorded:
            summed, linked = alignment_loss(weights, batch.alignment)
            loss = loss + self.config.loss.alignment_weight * summed
            sums["alignment"] = torch.stack([summed.detach(), linked])
        return loss, tokens, sums

    def _r_drop_loss(self, batch: Batch) -> tuple[Tensor, int, dict[str, Tensor]]:
        """Two passes in one, under different dropout."""
        twice = torch.cat((batch.source, batch.source))
        hidden = self.model(twice, batch.target_input.repeat(2, 1))
        # (2 batch) target width -> 2 (batch target) width -> 2 token width
        hidden = hidden.view(2, -1, hidden.size(-1)).index_select(1, batch.labeled)
        hidden, weight = joined_bias(hidden, self.model.projection)
        loss, cross_entropy, divergence = r_drop_loss(
            self.config.loss, hidden, weight, batch.labels, compiled=self.compiled
        )
        return loss, batch.target_tokens, {"loss": cross_entropy, "consistency": divergence}

    @cached_property
    def guided(self) -> HeadName | None:
        """The head of the attention that learns word links; None without any."""
        return guided_head(self.config.loss, self.model.config)

    @property
    def guided_attention(self) -> MultiHeadAttention | None:
        if self.guided is None:
            return None
        layer = cast(DecoderLayer, self.model.decoder.layers[self.guided.layer])
        return layer.cross_attention

    def setup(self, stage: str) -> None:
        """Store with the weights how long the sources of the training text are; or InputError."""
        super().setup(stage)
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        if stage == "fit" and isinstance(data, BatchModule):
            self.portable = replace(self.portable, longest_source=data.longest_source())

    def configure_callbacks(self) -> Sequence[Callback]:
        """The metrics of training, unless the trainer has them, and scores of translations."""
        trainer: Any = self.trainer
        measured = any(isinstance(callback, Measure) for callback in trainer.callbacks)
        callbacks: list[Callback] = [] if measured else [Measure()]
        if isinstance(trainer.datamodule, BatchModule):
            callbacks.append(
                TranslateValidation(self.config.metrics, self.config.callbacks.samples)
            )
        return callbacks

    def translator(self) -> Translator:
        """A translator with the model in training, and the search of the config."""
        return Translator(
            self.model,
            self.tokenizer,
            self.config.decoding,
            batch_tokens=search_tokens(self.config),
            coverage_head=self.guided,
            limits=SourceLimits.trained(self.config, self.portable.longest_source),
        )


class ValidationOutputs(NamedTuple):
    """The text of a validation and the model's real outputs, one of each for each sentence."""

    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    outputs: Sequence[Output]


class TranslateValidation(Callback):
    """Logs ``val/METRIC`` of real translations, and ``val/METRIC_NAME`` of each of several corpora.

    Each rank translates a part of the sentences, when a moving average has replaced the weights.
    Later hooks of other callbacks find all outputs in ``latest``, on every rank. Samples of the
    translations are logged.
    """

    translator: Translator | DocumentTranslator
    references: Sequence[Sequence[str]]
    ranges: Mapping[str, range]

    def __init__(self, metrics: MetricsConfig, samples: int) -> None:
        self.metrics = metrics
        self.samples = samples
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
        scores = {"": self._scores(hypotheses, slice(None))}
        for corpus, lines in self.ranges.items():
            scores[corpus] = self._scores(hypotheses, slice(lines.start, lines.stop))
        values: dict[str, float] = {}
        for corpus, corpus_scores in scores.items():
            suffix = f"_{corpus}" if corpus else ""
            values |= {f"val/{metric}{suffix}": value for metric, value in corpus_scores.items()}
        pl_module.log_dict(values, rank_zero_only=False)
        if trainer.is_global_zero:
            self._log_scores(trainer, scores)
            self._log_samples(hypotheses)

    def _translate(self, trainer: Trainer) -> list[Output]:
        """Translate the sentences of this rank, and gather those of all ranks."""
        rank = trainer.global_rank
        ranks = trainer.world_size
        windows = self.translator.windows(self.sources)
        with search_autocast(trainer.precision, trainer.strategy.root_device):
            by_window = self.translator.translate_windows(self.sources, windows[rank::ranks])
        translations = [translation for window in by_window for translation in window]
        parts = [(as_outputs(translations, self.translator), length_counts(translations))] * ranks
        if ranks > 1:
            torch.distributed.all_gather_object(parts, parts[rank])
        if trainer.is_global_zero:
            warn_about_length_limit(counts for _, counts in parts)
        outputs = [Output("")] * len(self.sources)
        for part_rank, (part, _) in enumerate(parts):
            indices = (index for window in windows[part_rank::ranks] for index in window)
            for index, output in zip(indices, part, strict=True):
                outputs[index] = output
        return outputs

    def _scores(self, hypotheses: list[str], lines: slice) -> dict[str, float]:
        names = self.metrics.validated
        scores = score(
            hypotheses[lines],
            self.references[lines],
            names,
            config=self.metrics,
            sources=self.sources[lines],
        )
        return {name: result.value for name, result in zip(names, scores, strict=True)}

    def _log_scores(self, trainer: Trainer, scores: Mapping[str, Mapping[str, float]]) -> None:
        epochs = trainer.datamodule.epochs(trainer.global_step)  # type: ignore[attr-defined]
        update = shown_update(trainer.global_step, epochs)
        for corpus, corpus_scores in scores.items():
            shown = (
                f"{METRICS[metric].label} {value:.2f}" for metric, value in corpus_scores.items()
            )
            logger.info("%s: %s", f"  {corpus}" if corpus else update, ", ".join(shown))

    def _log_samples(self, hypotheses: list[str]) -> None:
        sentences = zip(self.sources, hypotheses, self.references, strict=True)
        for source, hypothesis, references in islice(sentences, max(0, self.samples)):
            texts = (source, hypothesis, " | ".join(references))
            shown = [escaped(shortened(text, _MAX_SHOWN)) for text in texts]
            logger.info("  %s => %s (reference: %s)", *shown)


class TranslationTask(Task):
    """The task ``translation``: sentence pairs, an encoder-decoder, scores of its real output."""

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
        # Its flags compare a translation with the source text.
        reads_text = config.data.source_kind == "text"
        detector = Detector.load(checkpoint, config.data) if reads_text else None

        def evaluate(split: str) -> Evaluation:
            texts = self.data.texts(split)
            by_sentence = in_documents(translator)
            with search_autocast(precision, translator.device):
                translations = by_sentence.translate(texts.sources)
            warn_about_length_limit([length_counts(translations)])
            outputs = as_outputs(translations, by_sentence)
            failures = None
            if detector is not None:
                failures = find_failures(detector, texts.sources, texts.references, outputs)
            hypotheses = [translation.text for translation in translations]
            scores = score(
                hypotheses, texts.references, config=config.metrics, sources=texts.sources
            )
            return Evaluation(scores, hypotheses, failures=failures)

        return evaluate


def search_tokens(config: RunConfig) -> int:
    """The tokens of a batch of the search: as many as in training, unless set."""
    return config.trainer.search_tokens or config.data.budget
