"""Word links from the cross-attention, of translations and of given sentence pairs."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from tests.helpers.model.tolerance import assert_close
from transformer.common.errors import InputError
from transformer.data.batching.batch import collate
from transformer.data.text.word_alignment import NO_WORD, subword_words, word_count
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import (
    Aligner,
    align,
    aligning_attention,
    joined_links,
    word_links,
)
from transformer.decoding.forced_decoding import attention_maps
from transformer.decoding.long_inputs import SourceLimits
from transformer.model.head_masks import HeadName

SOURCES = [source for source, _ in PAIRS]


def test_word_links() -> None:
    # Source words: 0 0 1; target words: 0 1 1. No one piece of word 0 is the best of its row.
    weights = torch.tensor([[0.3, 0.3, 0.4], [0.1, 0.1, 0.4], [0.1, 0.1, 0.5]])
    assert word_links(weights, [0, 0, 1], [0, 1, 1], 0.9) == {(0, 0), (1, 1)}
    assert word_links(weights, [0, 0, 1], [0, 1, 1], 0.4) == {(0, 0), (1, 0), (0, 1), (1, 1)}
    # A tie links both words; no weight or no word links nothing.
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
    assert word_links(weights, [0, 1, 2], [0, 1], 1.0) == {(0, 0), (1, 0)}
    assert word_links(weights[:0], [0, 1, 2], [], 1.0) == frozenset()
    # A separator is of no word.
    weights = torch.tensor([[0.6, 0.0, 0.4], [0.0, 1.0, 0.0], [0.1, 0.0, 0.9]])
    assert word_links(weights, [0, 1, 2], [0, NO_WORD, 1], 1.0) == {(0, 0), (2, 1)}


def test_a_part_continues_the_last_source_word_after_its_tags() -> None:
    # One word of three subwords, cut after the second; each part begins with the tag.
    sources = [[NO_WORD, 0, 0], [NO_WORD, 0]]
    maps = [torch.tensor([[0.1, 0.9, 0.0], [0.1, 0.0, 0.9]]), torch.tensor([[0.9, 0.1]])]
    assert joined_links(maps, sources, [[0, 1], [0]], 0.6) == {(0, 0), (0, 1), (0, 2)}
    # The translator numbers them so.
    tokenizer = tiny_tokenizer().with_tags(Tags(targets=("de",)))
    translator = replace(
        tiny_translator(
            source_vocab_size=tokenizer.source_vocab_size,
            target_vocab_size=tokenizer.target_vocab_size,
        ),
        tokenizer=tokenizer,
        limits=SourceLimits(longest=6, usual=6),
    )
    [found] = translator.translate([TaggedText("xylophonists", SourceTags("de"))], alignment=True)
    assert found.parts > 1 and found.alignment
    assert {source for source, _ in found.alignment} == {0}


def test_without_blanks_a_part_continues_the_last_target_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maps = [torch.ones(1, 1)] * 3
    sources = [[0], [1], [2]]
    targets = [[0], [NO_WORD], [0]]
    assert joined_links(maps, sources, targets, 0.6, "") == {(0, 0), (2, 0)}
    assert joined_links(maps, sources, targets, 0.6, " ") == {(0, 0), (2, 1)}
    # A model that writes one word for each part.
    monkeypatch.setattr(Tokenizer, "decode_target", lambda self, rows: ["日本。"] * len(rows))
    monkeypatch.setattr(Tokenizer, "target_words", lambda self, row, text: [0] * len(row))
    [whole] = tiny_translator(max_length=24).translate([" ".join(SOURCES)], alignment=True)
    assert whole.text == "日本。" * 4 and whole.alignment
    assert {target for _, target in whole.alignment} == {0}


def test_one_head_or_the_mean_of_all_above_the_first_layer() -> None:
    model = tiny_translator(decoder_layers=3).model
    batch = collate([[9, 8, 7], [6]], [[5], [4, 9]])
    maps = attention_maps(model, batch.source, batch.target_input)["cross"]
    one = aligning_attention(model, batch.source, batch.target_input, HeadName("cross", 1, 2))
    assert_close(one, maps[1][:, 2])
    every = aligning_attention(model, batch.source, batch.target_input, None)
    assert_close(every, torch.cat(maps[1:], dim=1).mean(1))


@pytest.mark.parametrize("head", [None, HeadName("cross", 1, 3)])
def test_links_of_a_translation_equal_those_of_its_attention_and_of_its_pair(
    head: HeadName | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = tiny_translator(
        beam_size=3, nbest=3, max_length_ratio=1.0, decoder_layers=3, aligner=Aligner(head, 0.8)
    )
    found = translator.translate(SOURCES, attention=True, alignment=True)
    assert found == translator.translate(SOURCES)  # attention and links apart
    for translation in found:
        assert translation.attention is not None and translation.alignment
        words = subword_words(translation.source_tokens), subword_words(translation.tokens)
        assert translation.alignment == word_links(translation.attention, *words, 0.8)
        text, _, links = translation.to_line().partition(" ||| ")
        assert text == translation.text
        assert translation.to_json()["alignment"] == links
    spelled = tiny_tokenizer().subwords(range(tiny_tokenizer().target_vocab_size))
    # A random model cuts words as no tokenizer does: the pairs have its subwords.
    subwords = [[spelled.index(token) for token in translation.tokens] for translation in found]
    monkeypatch.setattr(Tokenizer, "encode_target", lambda self, texts: subwords)
    pairs = list(zip(SOURCES, [translation.text for translation in found], strict=True))
    forced = align(translator.model, translator.tokenizer, pairs, head=head, near_best=0.8)
    assert [translation.alignment for translation in found] == forced


def test_blank_and_long_texts_have_links_too() -> None:
    translator = tiny_translator(max_length=24, max_length_ratio=1.0)
    texts = ["  ", " ".join(SOURCES), *SOURCES]
    blank, whole, *parts = translator.translate(texts, alignment=True)
    assert (blank.alignment, blank.to_line()) == (frozenset(), " ||| ")
    # A segment keeps its links, and only moves them.
    expected, source, target = set(), 0, 0
    for part, words in zip(parts, map(word_count, SOURCES), strict=True):
        assert part.alignment is not None
        expected |= {(first + source, second + target) for first, second in part.alignment}
        source, target = source + words, target + word_count(part.text)
    assert whole.alignment == expected


def test_forced_decoding_keeps_the_order_whatever_the_batches() -> None:
    translator = tiny_translator()
    pairs = [*PAIRS, ("", "ein hund"), ("a dog", ""), *PAIRS[:2]]
    model, tokenizer = translator.model, translator.tokenizer
    together = align(model, tokenizer, pairs, head=None, near_best=0.6)
    assert together == align(model, tokenizer, pairs, head=None, near_best=0.6, batch_tokens=1)
    assert together[4:6] == [frozenset()] * 2
    assert together[6:] == together[:2]
    assert all(together[:4])


def test_a_head_or_threshold_that_does_not_exist_is_an_error() -> None:
    heads = [HeadName("encoder", 0, 0), HeadName("cross", 2, 0), HeadName("cross", 0, 4)]
    for head in heads:
        with pytest.raises(InputError, match="has layers 0 to 1 of heads"):
            tiny_translator(aligner=Aligner(head))
    for threshold in (0.0, 2.0):
        with pytest.raises(InputError, match="alignment_threshold="):
            tiny_translator(aligner=Aligner(near_best=threshold))
