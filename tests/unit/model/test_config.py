"""What a ModelConfig refuses."""

from typing import Any

import pytest

from tests.helpers.models import tiny_config
from transformer.common.errors import InputError
from transformer.model.config import ModelConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_order": "mid"}, "model.norm_order=mid is unknown; choose pre or post or"),
        (
            {"positions": "absolute"},
            "model.positions=absolute is unknown; choose sinusoidal or learned or rotary",
        ),
        ({"activation": "tanh"}, "model.activation=tanh is unknown; choose relu or gelu"),
        ({"tie_embeddings": "some"}, "model.tie_embeddings=some is unknown; choose none or"),
        ({"attention": "flash"}, "model.attention=flash is unknown; choose auto or eager or"),
        ({"d_model": 0}, "model.d_model=0 must be at least 1"),
        ({"num_heads": 0}, "model.num_heads=0 must be at least 1"),
        ({"ffn_dim": -1}, "model.ffn_dim=-1 must be at least 1"),
        ({"encoder_layers": 0}, "model.encoder_layers=0 must be at least 1"),
        ({"decoder_layers": -1}, "model.decoder_layers=-1 must be at least 0"),
        ({"dropout": 1.0}, "model.dropout=1.0 must be in [0, 1)"),
        ({"attention_dropout": -0.1}, "model.attention_dropout=-0.1 must be in [0, 1)"),
        ({"activation_dropout": float("nan")}, "model.activation_dropout=nan must be in [0, 1)"),
        ({"source_token_dropout": 1.0}, "model.source_token_dropout=1.0 must be in [0, 1)"),
        ({"target_token_dropout": -0.1}, "model.target_token_dropout=-0.1 must be in [0, 1)"),
        ({"num_heads": 3}, "model.d_model=16 is not a multiple of model.num_heads=3"),
        ({"d_model": 15, "num_heads": 5}, "model.d_model=15 must be even for sinusoidal positions"),
        ({"num_kv_heads": 3}, "model.num_kv_heads=3 does not divide model.num_heads=4"),
        ({"num_kv_heads": 0}, "model.num_kv_heads=0 must be at least 1"),
        ({"head_dim": 0}, "model.head_dim=0 must be at least 1"),
        ({"positions": "rotary", "head_dim": 3}, "a head of width 3 must be even for rotary"),
        ({"positions": "relative", "relative_buckets": 6}, "model.relative_buckets=6 must be a"),
        (
            {"positions": "relative", "relative_max_distance": 4},
            "model.relative_max_distance=4 must be more than half of model.relative_buckets=8",
        ),
        ({"layer_drop": 1.0}, "model.layer_drop=1.0 must be in [0, 1)"),
        ({"norm": "batch"}, "model.norm=batch is unknown; choose layer or rms"),
        ({"share_layers": "some"}, "model.share_layers=some is unknown; choose none or all or"),
        ({"pattern": "dilated"}, "model.pattern=dilated is unknown; choose full or sliding or"),
        ({"decoder_pattern": "x"}, "model.decoder_pattern=x is unknown; choose full or sliding or"),
        ({"pattern": "sliding", "window": 0}, "model.window=0 must be at least 1"),
        ({"decoder_pattern": "strided", "window": 1}, "model.window=1 lets model.pattern=strided"),
        (
            {"attention": "eager", "sdpa_backend": "math"},
            "model.sdpa_backend=math is a kernel of model.attention=sdpa, not of eager",
        ),
        (
            {"attention": "flex", "attention_dropout": 0.1},
            "model.attention=flex drops no weights; set model.attention_dropout=0, not 0.1",
        ),
        ({"source_vocab_size": 23}, "model.tie_embeddings=all needs one vocabulary for both sides"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    # Past the check of the annotations that tests have and users have not.
    config = object.__new__(ModelConfig)
    config.__dict__.update(tiny_config().to_dict() | changes)
    with pytest.raises(InputError) as caught:
        config.__post_init__()
    assert str(caught.value).startswith(message)


def test_an_odd_width_is_fine_for_learned_positions() -> None:
    assert tiny_config(d_model=15, num_heads=5, positions="learned").d_k == 3


@pytest.mark.parametrize("tie_embeddings", ["none", "decoder"])
def test_two_vocabularies_are_fine_without_tying_them(tie_embeddings: str) -> None:
    assert tiny_config(source_vocab_size=9, tie_embeddings=tie_embeddings).source_vocab_size == 9


def test_to_dict_is_enough_to_build_it_again() -> None:
    config = tiny_config(activation="gelu", dropout=0.3)
    assert ModelConfig(**config.to_dict()) == config
