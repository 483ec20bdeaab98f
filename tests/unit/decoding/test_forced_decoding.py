"""Scores of given translations equal those of the search; the attention over given pairs."""

import math
from typing import Any

import pytest
import torch

from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.common.errors import InputError
from transformer.data.batching.batch import Source
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.decoding.forced_decoding import (
    Attended,
    forced_attention,
    score_pairs,
    score_subwords,
)
from transformer.model.encoder import Memory
from transformer.model.head_masks import Kind


@pytest.mark.parametrize("batch_tokens", [1, 30])
def test_a_hypothesis_scores_as_in_its_search(batch_tokens: int) -> None:
    translator = tiny_translator(beam_size=3, nbest=3, length_penalty=1.0)
    tokenizer = translator.tokenizer
    ids = {subword: number for number, subword in enumerate(tokenizer.subwords(range(310)))}
    pairs = []
    expected = []
    for source, _ in PAIRS:
        [translation] = translator.translate([source])
        [subwords] = tokenizer.encode_source([source])
        for candidate in translation.nbest:
            pairs.append((subwords, [ids[token] for token in candidate.tokens]))
            expected.append(candidate.log_probability)
    rows = score_subwords(translator.model, pairs, batch_tokens)
    assert [len(row) for row in rows] == [len(target) + 1 for _, target in pairs]
    assert [math.fsum(row) for row in rows] == pytest.approx(expected, abs=1e-4)


def test_too_little_memory_scores_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = tiny_translator()
    model = translator.model
    expected = score_pairs(model, translator.tokenizer, PAIRS)
    encode = model.encode
    most = 2

    def poor(source: Source) -> Memory:
        if len(source) > most:
            raise torch.OutOfMemoryError("a double's")
        return encode(source)

    monkeypatch.setattr(model, "encode", poor)
    scored = score_pairs(model, translator.tokenizer, PAIRS)
    assert [one.tokens for one in scored] == [one.tokens for one in expected]
    for one, other in zip(scored, expected, strict=True):
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-4)
    most = 0
    with pytest.raises(InputError, match=r"runs out of memory with one pair of \d+ tokens"):
        score_pairs(model, translator.tokenizer, PAIRS)


def test_given_tags_have_no_share_in_a_mean() -> None:
    tokenizer = tiny_tokenizer().with_tags(Tags(targets=("de",), both_sides=True))
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
    )
    sources = [TaggedText(text, SourceTags("de", source="de")) for text in ("a dog", "")]
    pair, blank = score_pairs(model, tokenizer, list(zip(sources, ("ein", ""), strict=True)))
    assert pair.tokens[0] == "<2 de>" and pair.token_log_probabilities[0] == 0.0
    count = len(tokenizer.encode_target(["ein"])[0]) + 1
    assert pair.mean_log_probability == pytest.approx(pair.log_probability / count)
    assert blank.mean_log_probability == blank.log_probability < 0


def test_what_cannot_be_scored_is_named() -> None:
    translator = tiny_translator(beam_size=1, positions="learned", max_length=8)
    with pytest.raises(InputError, match=r"pair 11 has a side of \d+ .*model.max_length=8"):
        score_pairs(
            translator.model, tiny_tokenizer(), [("a", "a"), ("a", "the dog " * 20)], first=10
        )
    longer, shorter = (
        tiny_translator(positions="learned", max_length=12, max_source_length=length)
        for length in (99, 6)
    )
    pairs = [("the dog " * 20, "ein"), ("a dog", "ein")]
    assert len(score_pairs(longer.model, longer.tokenizer, pairs)) == 2
    with pytest.raises(InputError, match=r"pair 1 has a side of \d+ .*model.max_source_length=6 "):
        score_pairs(shorter.model, shorter.tokenizer, pairs)
    translator = tiny_translator()
    torch.nn.init.constant_(translator.model.projection.weight, math.nan)
    with pytest.raises(InputError, match="gave NaN as log-probability"):
        score_pairs(translator.model, translator.tokenizer, PAIRS)


SOURCES, TARGETS = [[5, 6, 7, 8, 9], [10, 11]], [[12, 13], [14, 15, 16, 17]]


def forced(**changes: Any) -> dict[Kind, Attended]:
    return forced_attention(tiny_transformer(**changes), SOURCES, TARGETS)[1]


def test_padding_and_what_is_beyond_a_pattern_is_not_visible() -> None:
    attention = forced()
    # One more for the end of the source, the beginning or the end of the target.
    assert attention["encoder"].visible.sum((1, 2)).tolist() == [6 * 6, 3 * 3]
    assert attention["decoder"].visible.sum((1, 2)).tolist() == [1 + 2 + 3, 1 + 2 + 3 + 4 + 5]
    assert attention["cross"].visible.sum((1, 2)).tolist() == [3 * 6, 5 * 3]
    assert attention["encoder"].separator.nonzero().tolist() == [[0, 5], [1, 2]]
    assert torch.equal(attention["cross"].separator, attention["encoder"].separator)
    assert not attention["decoder"].separator.any()
    # A pattern hides what is far.
    attention = forced(pattern="sliding", window=1)
    assert attention["encoder"].visible.sum((1, 2)).tolist() == [6 + 2 * 5, 3 + 2 * 2]
    assert attention["decoder"].visible.sum((1, 2)).tolist() == [3 + 2, 5 + 4]
    for attended in attention.values():
        real = attended.visible.any(-1)
        for weights in attended.weights:
            on_visible = weights.masked_fill(~attended.visible[:, None], 0.0).sum(-1)
            rows = on_visible.transpose(1, 2)[real]
            assert_close(rows, torch.ones_like(rows))
