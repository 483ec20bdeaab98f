"""The training step of a translator: teacher forcing, with guided alignment or two passes."""

from typing import Any, cast

import torch
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch
from transformer.decoding.alignment import guided_head
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.decoder import DecoderLayer
from transformer.model.transformer import Transformer
from transformer.settings.loss import LossConfig
from transformer.training.step.update_module import UpdateModule


class TranslationModule(UpdateModule):
    """Trains a ``Transformer`` by teacher forcing; InputError if alignment has no fixed head."""

    model: Transformer

    def __init__(self, model: Transformer, *, loss: LossConfig, **settings: Any) -> None:
        super().__init__(model, loss=loss, **settings)
        self.guided = guided_head(loss, model.config)
        shared = model.config.share_layers in ("all", "attention")
        if self.guided is not None and model.config.layer_drop and shared:
            raise InputError(
                f"loss.alignment_weight guides one layer, which model.layer_drop="
                f"{model.config.layer_drop} moves among layers that share their attention; set "
                "model.layer_drop=0 or model.share_layers=none"
            )

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
        if self.loss.consistency != "none":
            return self._twice(batch)
        if self.guided is None:
            return super().micro_loss(batch)
        assert batch.alignment is not None  # DataModule(links=True)
        from transformer.training.losses.guided_alignment import alignment_loss, watching

        with watching(self.model, self.guided) as looked:
            loss, tokens, sums = super().micro_loss(batch)
        sums["alignment"] = torch.zeros(2, device=loss.device)
        for weights in looked:
            summed, linked = alignment_loss(weights, batch.alignment)
            loss = loss + self.loss.alignment_weight * summed
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
            self.loss, hidden, weight, batch.labels, compiled=self.compiled
        )
        return loss, batch.target_tokens, {"loss": cross_entropy, "consistency": divergence}
