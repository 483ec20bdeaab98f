"""Which tokens are cut from the second pass, and what a model sees in their place."""

import pytest
import torch

from tests.helpers.model.models import tiny_transformer
from transformer.data.tokenization.tokenizer import BOS, EOS, PAD, UNK
from transformer.training.losses.consistency import cutting, drawn_cut

TOKENS = torch.tensor([[5, 6, 7, 3, 0], [8, 9, 3, 0, 0]]).repeat(2, 1)


def test_the_share_cut_is_the_probability_and_only_text_is() -> None:
    torch.manual_seed(1)
    tokens = torch.randint(0, 9, (400, 500))
    cut = drawn_cut(tokens, 0.05)
    assert cut is not None and not cut[:200].any()
    cut, tokens = cut[200:], tokens[200:]
    for control in (PAD, BOS, EOS):
        assert not cut[tokens == control].any()
    # Text, the unknown included; five standard deviations of the draw.
    for subword in (UNK, 4, 8):
        here = cut[tokens == subword].double()
        assert abs(here.mean().item() - 0.05) < 5 * (0.05 * 0.95 / len(here)) ** 0.5
    state = torch.random.get_rng_state()
    assert drawn_cut(TOKENS, 0.0) is None
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("tie", ["all", "none"])
def test_of_a_token_that_is_cut_the_position_alone_is_left(tie: str) -> None:
    model = tiny_transformer(tie_embeddings=tie)
    whole = [side(TOKENS) for side in (model.source_embedding, model.target_embedding)]
    source, target = torch.zeros_like(TOKENS).bool(), torch.zeros_like(TOKENS).bool()
    source[2, 1] = target[3, 0] = True
    with cutting(model, source, target):
        parts = [side(TOKENS) for side in (model.source_embedding, model.target_embedding)]
    positions = model.source_embedding.positions
    assert positions is not None
    for before, after, cut in zip(whole, parts, (source, target), strict=True):
        assert torch.equal(after[~cut], before[~cut])
        assert torch.equal(after[cut], positions(5)[cut.nonzero()[:, 1]])
    again = [side(TOKENS) for side in (model.source_embedding, model.target_embedding)]
    assert all(map(torch.equal, again, whole))


def test_the_model_is_whole_again_after_an_error() -> None:
    model = tiny_transformer()
    whole = model.source_embedding(TOKENS)
    everything = torch.ones_like(TOKENS).bool()
    with pytest.raises(torch.OutOfMemoryError), cutting(model, everything, None):
        raise torch.OutOfMemoryError
    assert torch.equal(model.source_embedding(TOKENS), whole)
