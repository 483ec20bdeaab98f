"""Language models and taggers of one stack: probabilities and tags, line by line."""

import math

import pytest
import torch

from tests.helpers.decoding.translators import tiny_tokenizer
from tests.helpers.model.models import tiny_config
from transformer.common.errors import InputError
from transformer.data.text.conllu import UPOS
from transformer.decoding.prediction import LanguageModel, Tagger, perplexity
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.settings.tokenizer import BOS, EOS

ROWS = [[5, 6, 7], [], [8], [9, 10, 11, 12, 13]]


def tiny_model(causal: bool = True, **changes: object) -> SingleStack:
    torch.manual_seed(1)
    return build_single_stack(tiny_config(decoder_layers=0, **changes), causal=causal).eval()


def language_model(**changes: object) -> LanguageModel:
    tokenizer = tiny_tokenizer()
    size = tokenizer.target_vocab_size
    return LanguageModel(
        tiny_model(source_vocab_size=size, target_vocab_size=size, **changes), tokenizer
    )


@torch.no_grad()
def test_every_token_and_every_end_is_predicted_once() -> None:
    model = tiny_model()
    found = LanguageModel(model, tiny_tokenizer(), batch_tokens=8).log_probabilities(ROWS)
    for row, scores in zip(ROWS, found, strict=True):
        expected = []
        for index, token in enumerate([*row, EOS]):
            logits = model.logits(model(torch.tensor([[BOS, *row[:index]]])))[0, -1]
            expected.append(logits.log_softmax(-1)[token].item())
        assert scores.tolist() == pytest.approx(expected, rel=1e-5)


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary() -> None:
    model = language_model()
    size = model.tokenizer.target_vocab_size
    with torch.no_grad():
        model.model.projection.weight.zero_()
    dog, empty = model.predict(["the dog", ""])
    assert dog.perplexity == pytest.approx(size)
    assert dog.log_probability == pytest.approx(-(len(dog.tokens) + 1) * math.log(size))
    assert (empty.tokens, empty.to_line()) == ((), f"{-math.log(size):.6f}\t{size:.4f}")
    assert perplexity(1000.0) == math.inf


def test_a_line_that_is_too_long_comes_after_the_lines_before() -> None:
    lines = ["the", "dog " * 50]
    found = language_model(max_length=40).predict_stream(lines, name="in.txt")
    assert next(found).tokens
    with pytest.raises(InputError, match=r"in\.txt:2: .* model\.max_length=40"):
        next(found)


def test_a_tag_for_each_word_with_its_probability() -> None:
    tokenizer = tiny_tokenizer()
    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": len(UPOS)}
    model = tiny_model(causal=False, tie_embeddings="none", **sizes)
    tagger = Tagger(model, tokenizer)
    lines = ["the dog  unheard-of\n", "\n", " \t\n", "cat\n"]
    found = list(tagger.predict_stream(lines))
    assert [tags.words for tags in found] == [("the", "dog", "unheard-of"), (), (), ("cat",)]
    assert [len(tags.to_line().split()) for tags in found] == [3, 0, 0, 1]
    [alone] = tagger.tag([["cat"]])
    assert (found[3].words, found[3].tags) == (alone.words, alone.tags)
    # Products and attention of other shapes round their last bit in another way.
    assert found[3].probabilities == pytest.approx(alone.probabilities, rel=1e-6)
    values = found[0].to_json()
    assert (values["words"], values["tags"]) == (found[0].words, found[0].tags)
    assert all(1 / len(UPOS) < probability <= 1 for probability in values["probabilities"])
