"""A single stack: a tagger (Devlin et al. 2019) or a language model (Radford et al. 2018)."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.common.errors import InputError
from transformer.model import build
from transformer.model.attention.masks import padding_mask
from transformer.model.encoder import Encoder
from transformer.model.initialization import initialize
from transformer.model.layers.dropout import HiddenStates
from transformer.model.layers.embedding import Embedding
from transformer.settings.model import ModelConfig


class SingleStack(nn.Module):
    """Embedding, stack, and the projection to the outputs of each position."""

    def __init__(
        self, config: ModelConfig, *, embedding: Embedding, stack: Encoder, projection: nn.Linear
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        self.stack = stack
        self.projection = projection

    def tie_weights(self) -> None:
        """Let the projection share the table of the embedding, if the config says so."""
        if self.config.tie_embeddings in ("decoder", "all"):
            self.projection.weight = self.embedding.tokens.lookup.weight

    def forward(self, tokens: Int[Tensor, "batch length"]) -> HiddenStates:
        """Hidden states of tokens that are padded at the right end."""
        # The causal mask hides padding at the right end.
        causal = self.stack.attention_context.causal
        mask = None if causal else padding_mask(tokens, self.config.pad)
        hidden = self.stack(self.embedding(tokens), mask)
        return hidden * self.config.output_scale if self.config.scale_output else hidden

    def logits(self, hidden: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows vocab"]:
        return self.projection(hidden)


def build_single_stack(config: ModelConfig, *, causal: bool) -> SingleStack:
    """Build and initialize a stack; ``causal`` hides later positions."""
    model = assemble_single_stack(config, causal=causal)
    initialize(model)
    return model


def assemble_single_stack(config: ModelConfig, *, causal: bool) -> SingleStack:
    """The modules of a stack, to be initialized or loaded.

    Input and output have the vocabularies of source and target; ``encoder_layers`` and ``pattern``
    apply. Raises InputError if embedding and projection are tied and the vocabularies differ.
    """
    tied = config.tie_embeddings in ("decoder", "all")
    if tied and config.source_vocab_size != config.target_vocab_size:
        raise InputError(
            f"model.tie_embeddings={config.tie_embeddings} needs outputs of the same vocabulary "
            "as the input; set model.tie_embeddings=none"
        )
    tokens = build.build_token_embedding(config, config.source_vocab_size)
    return SingleStack(
        config,
        projection=build.build_projection(config),
        embedding=build.build_embedding(config, tokens, config.source_token_dropout),
        stack=build.build_encoder(config, causal=causal),
    )
