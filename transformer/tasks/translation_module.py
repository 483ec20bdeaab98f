"""The training step of a translator: teacher forcing, with guided alignment or two passes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import torch
from pytorch_lightning import Callback
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch
from transformer.data.datamodules.base import BatchModule
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import HeadName, guided_head
from transformer.decoding.long_inputs import SourceLimits
from transformer.decoding.translator import Translator
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.build import build_transformer
from transformer.model.decoder import DecoderLayer
from transformer.model.transformer import Transformer
from transformer.settings.run import RunConfig
from transformer.tasks.translate_validation import TranslateValidation
from transformer.training.callbacks.metrics import Measure
from transformer.training.step.update_module import UpdateModule


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
        if not tokenizer.same_ids and config.model.tie_embeddings == "all":
            raise InputError(
                "model.tie_embeddings=all needs one vocabulary for both sides; "
                "set tokenizer.joint=true or model.tie_embeddings=decoder"
            )
        sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
        return build_transformer(config.model.sized(*sizes))

    @cached_property
    def guided(self) -> HeadName | None:
        """The head of the attention that learns word links; None without any."""
        return guided_head(self.config.loss, self.model.config)

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

    def configure_callbacks(self) -> Sequence[Callback]:
        """The metrics of training, unless the trainer has them, and scores of translations."""
        trainer: Any = self.trainer
        measured = any(isinstance(callback, Measure) for callback in trainer.callbacks)
        callbacks: list[Callback] = [] if measured else [Measure()]
        if isinstance(trainer.datamodule, BatchModule):
            config = self.config
            callbacks.append(TranslateValidation(config.metrics, config.callbacks.samples))
        return callbacks

    def setup(self, stage: str) -> None:
        """Store with the weights how long the sources of the training text are; or InputError."""
        super().setup(stage)
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        if stage == "fit" and isinstance(data, BatchModule):
            self.portable = replace(self.portable, longest_source=data.longest_source())

    def predictions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states and right tokens of the real target positions, side by side."""
        hidden = self.model(batch.source, batch.target_input)
        return hidden.flatten(0, 1).index_select(0, batch.labeled), batch.labels

    @property
    def guided_attention(self) -> MultiHeadAttention | None:
        if self.guided is None:
            return None
        layer = cast(DecoderLayer, self.model.decoder.layers[self.guided.layer])
        return layer.cross_attention

    def micro_loss(self, batch: Batch) -> tuple[Tensor, int, dict[str, Tensor]]:
        if self.config.loss.consistency != "none":
            return self._twice(batch)
        if self.guided is None:
            return super().micro_loss(batch)
        assert batch.alignment is not None  # the data of such a config have links
        from transformer.training.losses.guided_alignment import alignment_loss, watching

        with watching(self.model, self.guided) as looked:
            loss, tokens, sums = super().micro_loss(batch)
        sums["alignment"] = torch.zeros(2, device=loss.device)
        for weights in looked:
            summed, linked = alignment_loss(weights, batch.alignment)
            loss = loss + self.config.loss.alignment_weight * summed
            sums["alignment"] = torch.stack([summed.detach(), linked])
        return loss, tokens, sums

    def _twice(self, batch: Batch) -> tuple[Tensor, int, dict[str, Tensor]]:
        """Two passes in one, under different dropout."""
        from transformer.training.losses.cross_entropy import joined_bias
        from transformer.training.losses.r_drop import r_drop_loss

        hidden = self.model(batch.source.repeat(2, 1), batch.target_input.repeat(2, 1))
        # (2 batch) target width -> 2 (batch target) width -> 2 token width
        hidden = hidden.view(2, -1, hidden.size(-1)).index_select(1, batch.labeled)
        hidden, weight = joined_bias(hidden, self.model.projection)
        loss, cross_entropy, divergence = r_drop_loss(
            self.config.loss, hidden, weight, batch.labels, compiled=self.compiled
        )
        return loss, batch.target_tokens, {"loss": cross_entropy, "consistency": divergence}


def search_tokens(config: RunConfig) -> int:
    """The tokens of a batch of the search: as many as in training, unless set."""
    return config.trainer.search_tokens or config.data.budget
