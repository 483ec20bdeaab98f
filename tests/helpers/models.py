"""Small models for tests."""

from typing import Any

import torch

from transformer.model.build import build_transformer
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer


def tiny_config(**changes: Any) -> ModelConfig:
    """Two layers of width 16 over a vocabulary of 24; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "source_vocab_size": 24,
        "target_vocab_size": 24,
        "pad": 0,
        "d_model": 16,
        "num_heads": 4,
        "ffn_dim": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "norm_order": "pre",
        "positions": "sinusoidal",
        "max_length": 64,
        "activation": "relu",
        "tie_embeddings": "all",
        "attention": "sdpa",
    }
    return ModelConfig(**(fields | changes))


def tiny_transformer(seed: int = 1, **changes: Any) -> Transformer:
    """A tiny model in evaluation mode, initialised from a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_transformer(tiny_config(**changes)).eval()
