"""Names become classes, tensors are shared as asked, and weights start as the paper's."""

import math

import pytest
import torch

from tests.helpers.model.models import tiny_config, tiny_transformer
from transformer.cli.config import compose_config, run_settings
from transformer.common.errors import InputError
from transformer.model.build import build_transformer
from transformer.model.transformer import Transformer


def preset(name: str, vocab_size: int) -> Transformer:
    config = run_settings(compose_config("train", ["~experiment", f"model={name}"])).model
    with torch.device("meta"):
        return build_transformer(config.sized(vocab_size, vocab_size))


def size(model: Transformer) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("tie_embeddings", "tables"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tying(tie_embeddings: str, tables: int) -> None:
    model = tiny_transformer(tie_embeddings=tie_embeddings)
    source = model.source_embedding.tokens.lookup.weight
    target = model.target_embedding.tokens.lookup.weight
    projection = model.projection.weight
    assert (source is target) == (tie_embeddings == "all")
    assert (target is projection) == (tie_embeddings != "none")
    assert len({id(source), id(target), id(projection)}) == tables


def test_initial_weights() -> None:
    torch.manual_seed(1)
    model = build_transformer(
        tiny_config(
            source_vocab_size=500, target_vocab_size=500, d_model=64, tie_embeddings="none", pad=4
        )
    )
    for table in (
        model.source_embedding.tokens.lookup.weight,
        model.target_embedding.tokens.lookup.weight,
    ):
        assert not table[4].any()
        real = table[torch.arange(500) != 4]
        # 32,000 draws: the standard error of a deviation is 1 / sqrt(64,000) of it.
        assert real.std().item() == pytest.approx(64**-0.5, rel=0.02)
        assert real.mean().item() == pytest.approx(0, abs=5 * 64**-0.5 / 32_000**0.5)
    assert model.projection.weight.std().item() == pytest.approx(64**-0.5, rel=0.02)
    # The scale of the lookup brings a token to unit variance.
    embedded = model.source_embedding.tokens(torch.arange(10, 400)[None])
    assert embedded.std().item() == pytest.approx(1, rel=0.02)
    # Learned positions start small.
    model = tiny_transformer(positions="learned", d_model=64, max_length=400)
    for embedding in (model.source_embedding, model.target_embedding):
        assert embedding.positions.table.std().item() == pytest.approx(64**-0.5, rel=0.02)


def test_glorot_bounds() -> None:
    torch.manual_seed(1)
    config = tiny_config(d_model=64, ffn_dim=96)
    model = build_transformer(config)
    layer = model.decoder.layers[0]
    width, inner = config.d_model, config.ffn_dim
    # Glorot and Bengio 2010: sqrt(6 / (fan in + fan out)); query, key and value are one matrix
    # of 3 d_model rows.
    bounds = {
        layer.feed_forward.inner: math.sqrt(6 / (width + inner)),
        layer.feed_forward.outer: math.sqrt(6 / (width + inner)),
    }
    for attention in (layer.self_attention, layer.cross_attention):
        bounds[attention.output] = math.sqrt(6 / (width + width))
        for projection in (attention.query, attention.key, attention.value):
            bounds[projection] = math.sqrt(6 / (width + 3 * width))
    for linear, bound in bounds.items():
        largest = linear.weight.abs().max().item()
        assert 0.99 * bound < largest <= bound
        assert not linear.bias.any()


def test_dropouts_reach_their_places() -> None:
    model = tiny_transformer(dropout=0.1, attention_dropout=0.2, activation_dropout=0.3)
    layer = model.decoder.layers[1]
    assert layer.self_attention.dropout == layer.cross_attention.dropout == 0.2
    assert layer.feed_forward.dropout.probability == 0.3
    residuals = (layer.self_residual, layer.cross_residual, layer.feed_forward_residual)
    assert {residual.dropout.probability for residual in residuals} == {0.1}
    assert model.source_embedding.dropout.probability == 0.1


def test_base_and_big_are_as_large_as_in_the_paper() -> None:
    """Section 5.1: one vocabulary of "about 37,000"; table 3: 65 million parameters.

    One table of 37,000 x 512 serves both embeddings and the projection, which makes 63.1 million;
    the paper's rounder number has 3,700 symbols more, or what its text leaves out.
    """
    width, inner, vocab = 512, 2048, 37_000
    attention = 4 * (width * width + width)
    feed_forward = width * inner + inner + inner * width + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    expected = vocab * width + 6 * encoder_layer + 6 * decoder_layer
    assert expected == 63_082_496
    assert size(preset("base", vocab)) == expected
    # Table 3 gives 213 million.
    assert size(preset("big", 37_000)) == pytest.approx(213e6, rel=0.02)


def test_a_start_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match="decoder_start=24 is not in the vocabulary"):
        build_transformer(tiny_config(decoder_start=24))
