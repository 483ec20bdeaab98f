"""What a ModelConfig refuses."""

from typing import Any

import pytest

from tests.helpers.model.models import tiny_config
from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.settings.model import ModelConfig

PROBABILITIES = (
    *("dropout", "attention_dropout", "activation_dropout"),
    *("source_token_dropout", "target_token_dropout", "layer_drop"),
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 0}, "model.d_model=0 must be at least 1"),
        ({"num_heads": 0}, "model.num_heads=0 must be at least 1"),
        ({"ffn_dim": -1}, "model.ffn_dim=-1 must be at least 1"),
        ({"encoder_layers": 0}, "model.encoder_layers=0 must be at least 1"),
        ({"decoder_layers": -1}, "model.decoder_layers=-1 must be at least 0"),
        ({"max_length": 10**8}, "model.max_length=100000000 must be from 1 to 1048576"),
        *(
            ({name: value}, f"model.{name}={value} must be at least 0 and below 1")
            for name in PROBABILITIES
            for value in (1.0, -0.1, float("nan"))
        ),
        ({"pad": -1}, "model.pad=-1 must be at least 0"),
        ({"pad": 24}, "model.pad=24 is outside of a vocabulary"),
        ({"encoder_layer": "a:B", "convolution_window": 3}, "model.encoder_layer has no conv"),
        ({"num_heads": 3}, "model.d_model=16 is not a multiple of model.num_heads=3"),
        (
            {"d_model": 15, "num_heads": 5},
            "model.d_model=15 must be even, and at least 2, for sinusoidal",
        ),
        ({"num_kv_heads": 3}, "model.num_kv_heads=3 does not divide model.num_heads=4"),
        ({"num_kv_heads": 0}, "model.num_kv_heads=0 must be at least 1"),
        ({"positions": "rotary", "head_dim": 3}, "a head of width 3 must be even for rotary"),
        ({"relative_buckets": 2}, "model.relative_buckets=2 must be at least 4"),
        ({"positions": "relative", "relative_buckets": 6}, "model.relative_buckets=6 must be a"),
        (
            {"positions": "relative", "relative_max_distance": 4},
            "model.relative_max_distance=4 must be more than half of model.relative_buckets=8",
        ),
        (
            {"attention": "eager", "sdpa_backend": "math"},
            "model.sdpa_backend=math is a kernel of model.attention=sdpa, not of eager",
        ),
        (
            {"attention": "flex", "attention_dropout": 0.1},
            "model.attention=flex drops no weights; set model.attention_dropout=0, or choose sdpa",
        ),
        ({"source_vocab_size": 23}, "model.tie_embeddings=all needs one vocabulary for both sides"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        typed(ModelConfig, tiny_config().to_dict() | changes, "model")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": 15, "num_heads": 5, "positions": "learned"},
        {"source_vocab_size": 9, "tie_embeddings": "none"},
        {"source_vocab_size": 9, "tie_embeddings": "decoder"},
        {"activation": "gelu", "dropout": 0.3},
    ],
)
def test_to_dict_is_enough_to_build_it_again(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    assert typed(ModelConfig, config.to_dict(), "model") == config
