"""A tag for each word, in order, whatever is blank or cut into subwords."""

import pytest
import torch

from tests.helpers.decoding.translators import tiny_tokenizer
from tests.helpers.model.models import tiny_config
from transformer.data.text.conllu import UPOS
from transformer.decoding.prediction import Tagger
from transformer.model.single_stack import build_single_stack


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    torch.manual_seed(1)
    tokenizer = tiny_tokenizer()
    config = tiny_config(
        decoder_layers=0,
        tie_embeddings="none",
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=len(UPOS),
    )
    return Tagger(build_single_stack(config, causal=False).eval(), tokenizer)


LINES = ["the dog  unheard-of", "", " \t", "cat"]


def test_a_tag_for_each_word_with_its_probability(tagger: Tagger) -> None:
    found = list(tagger.predict_stream([f"{line}\n" for line in LINES]))
    assert [tags.words for tags in found] == [("the", "dog", "unheard-of"), (), (), ("cat",)]
    assert [len(tags.to_line().split()) for tags in found] == [3, 0, 0, 1]
    assert all(tag in UPOS for tags in found for tag in tags.tags)
    (alone,) = tagger.tag([["cat"]])
    assert (found[3].words, found[3].tags) == (alone.words, alone.tags)
    # Products and attention of other shapes round their last bit in another way.
    assert found[3].probabilities == pytest.approx(alone.probabilities, rel=1e-6)
    assert tagger.predict([]) == list(tagger.predict_stream([])) == []
    (found,) = tagger.predict(["the dog"])
    told = found.to_json()
    assert told["words"] == ("the", "dog")
    assert all(1 / len(UPOS) < probability <= 1 for probability in told["probabilities"])
    assert told["tags"] == found.tags
