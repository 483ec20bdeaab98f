"""The probability of a text by hand: which events are predicted, and what is told of them."""

import math

import pytest
import torch

from tests.helpers.decoding.translators import tiny_tokenizer
from tests.helpers.model.models import tiny_config
from transformer.common.errors import InputError
from transformer.decoding.prediction import LanguageModel, perplexity
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.settings.tokenizer import BOS, EOS

ROWS = [[5, 6, 7], [], [8], [9, 10, 11, 12, 13]]


def tiny_model(**changes: int) -> SingleStack:
    torch.manual_seed(1)
    return build_single_stack(tiny_config(decoder_layers=0, **changes), causal=True).eval()


def surprise(model: SingleStack, row: list[int]) -> list[float]:
    """Of each token and of the end, one after the other."""
    found = []
    for index, right in enumerate([*row, EOS]):
        logits = model.logits(model(torch.tensor([[BOS, *row[:index]]])))[0, -1]
        found.append(logits.log_softmax(-1)[right].item())
    return found


@pytest.mark.parametrize("batch_tokens", [1, 8, 1000])
def test_every_token_and_every_end_is_predicted_once(batch_tokens: int) -> None:
    model = tiny_model()
    with torch.no_grad():
        expected = [surprise(model, row) for row in ROWS]
    found = LanguageModel(model, tiny_tokenizer(), batch_tokens).log_probabilities(ROWS)
    for row, right in zip(found, expected, strict=True):
        assert row.tolist() == pytest.approx(right, rel=1e-5)


def test_a_uniform_model_is_as_perplexed_as_there_are_tokens() -> None:
    tokenizer = tiny_tokenizer()
    size = tokenizer.target_vocab_size
    model = tiny_model(source_vocab_size=size, target_vocab_size=size)
    with torch.no_grad():
        model.projection.weight.zero_()
    dog, empty = LanguageModel(model, tokenizer).predict(["the dog", ""])
    assert dog.perplexity == pytest.approx(size)
    assert dog.log_probability == pytest.approx(-(len(dog.tokens) + 1) * math.log(size))
    assert (empty.tokens, empty.to_line()) == ((), f"{-math.log(size):.6f}\t{size:.4f}")
    assert "".join(dog.to_json()["tokens"]) == "▁the▁dog"
    # That of a diverged model is infinite.
    assert perplexity(math.log(7.0)) == pytest.approx(7.0)
    assert perplexity(1000.0) == perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_a_line_that_is_too_long_comes_after_the_lines_before() -> None:
    tokenizer = tiny_tokenizer()
    size = tokenizer.target_vocab_size
    model = tiny_model(source_vocab_size=size, target_vocab_size=size, max_length=40)
    found = LanguageModel(model, tokenizer).predict_stream(["the", "dog " * 50], name="in.txt")
    assert next(found).tokens
    with pytest.raises(InputError, match=r"in\.txt:2: a line of \d+ tokens is longer than model"):
        next(found)
