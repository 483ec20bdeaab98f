"""Small models for tests."""

from typing import Any

import torch

from transformer.checkpoint.checkpoint import PORTABLE, Portable
from transformer.model.build import build_transformer
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig, run_config


def tiny_config(**changes: Any) -> ModelConfig:
    """Two layers of width 16 over a vocabulary of 24; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "source_vocab_size": 24,
        "target_vocab_size": 24,
        "d_model": 16,
        "num_heads": 4,
        "ffn_dim": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "dropout": 0.0,
        "max_length": 64,
        "relative_buckets": 8,
        "relative_max_distance": 16,
        "attention": "sdpa",
        "window": 2,
        "random_blocks": 1,
        "random_block_size": 2,
    }
    return ModelConfig(**(fields | changes))


def tiny_transformer(seed: int = 1, **changes: Any) -> Transformer:
    """A tiny model in evaluation mode, initialized from a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_transformer(tiny_config(**changes)).eval()


def run_of(model: ModelConfig, **values: Any) -> RunConfig:
    """The settings of a run with this model, of plain values; others have their defaults."""
    return run_config({**values, "model": model.to_dict()})


def portable(config: ModelConfig, tokenizer: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """The portable part of a checkpoint; what the run leaves out has the defaults."""
    return Portable(run_of(config, **run), tokenizer).to_plain()


def tiny_payload(**more: Any) -> dict[str, Any]:
    """A whole checkpoint of a tiny model of one layer a stack."""
    model = tiny_transformer(encoder_layers=1, decoder_layers=1)
    weights = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    part = portable(model.config, {}, {"task": "translation"})
    return {"state_dict": weights, PORTABLE: part, **more}
