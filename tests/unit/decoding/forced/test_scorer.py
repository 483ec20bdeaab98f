"""Given translations are as probable as the search says of them."""

import math

import pytest
import torch

from tests.helpers.translators import PAIRS, tiny_tokenizer, tiny_translator
from transformer.common.errors import InputError
from transformer.decoding.forced.scorer import score_pairs, score_subwords


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_what_a_search_found_scores_as_it_said(batch_tokens: int, penalty: float) -> None:
    translator = tiny_translator(beam_size=3, nbest=3, length_penalty=penalty)
    tokenizer = translator.tokenizer
    ids = {subword: number for number, subword in enumerate(tokenizer.subwords(range(310)))}
    pairs, said = [], []
    for source, _ in PAIRS:
        [translation] = translator.translate([source])
        [subwords] = tokenizer.encode_source([source])
        for candidate in translation.nbest:
            pairs.append((subwords, [ids[token] for token in candidate.tokens]))
            said.append(candidate.log_probability)
    rows = score_subwords(translator.model, pairs, batch_tokens)
    assert [len(row) for row in rows] == [len(target) + 1 for _, target in pairs]
    assert [math.fsum(row) for row in rows] == pytest.approx(said, abs=1e-4)


def test_a_pair_is_scored_in_the_pieces_of_the_tokenizer() -> None:
    translator = tiny_translator()
    tokenizer = translator.tokenizer
    scores = score_pairs(translator.model, tokenizer, PAIRS)
    targets = tokenizer.encode_target([target for _, target in PAIRS])
    for score, target in zip(scores, targets, strict=True):
        assert score.tokens == (*tokenizer.subwords(target), "</s>")
        assert score.log_probability == pytest.approx(math.fsum(score.token_log_probabilities))


def test_what_cannot_be_scored_is_named() -> None:
    translator = tiny_translator(beam_size=1, positions="learned", max_length=8)
    with pytest.raises(
        InputError, match=r"side of \d+ pieces, and .*model.max_length=8 has room for 7;"
    ):
        score_pairs(translator.model, tiny_tokenizer(), [("a", "a"), ("a", "the dog " * 20)])
    with pytest.raises(InputError, match="pair 10 has a side"):
        score_pairs(translator.model, tiny_tokenizer(), [("the dog " * 20, "a")], first=10)
    translator = tiny_translator()
    torch.nn.init.constant_(translator.model.projection.weight, math.nan)
    with pytest.raises(InputError, match="gave NaN as log-probability"):
        score_pairs(translator.model, translator.tokenizer, PAIRS)
