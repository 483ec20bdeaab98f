"""Where a source that is too long is split."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.helpers.data.vocabulary_files import word_piece_file
from tests.helpers.decoding.translators import tiny_tokenizer, tiny_translator
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batching import LONG_LINE, make_windows
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.long_inputs import (
    SourceLimits,
    join_parts,
    part_lengths,
    sentence_lengths,
    split_segments,
)
from transformer.settings.data import DataConfig
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import Algorithm, TokenizerConfig


@pytest.mark.parametrize(
    ("subwords", "limit", "lengths"),
    [
        ("▁a b ▁c d ▁e", 3, [2, 3]),  # before a word
        ("▁a ▁b ▁c ▁d ▁e", 4, [3, 2]),  # into parts of similar length
        ("▁a . ▁b ▁c ▁d", 4, [2, 3]),  # rather after a sentence
        ("▁a . ▁b ! ▁c ▁d", 5, [4, 2]),  # rather after the last one
        ("▁a b c d e", 2, [2, 2, 1]),  # inside a word
        ("a b▁ c d▁ e▁", 3, [2, 3]),  # a word that ends with the mark
        ("a .▁ b▁ c▁ d▁", 4, [2, 3]),
    ],
)
def test_part_lengths(subwords: str, limit: int, lengths: list[int]) -> None:
    assert part_lengths(subwords.split(), limit) == lengths


@pytest.mark.parametrize(
    ("language", "subwords", "lengths"),
    [
        ("en", "▁Dr|.|▁Sm|ith|▁came|.|▁He|▁left|.", [6, 3]),
        ("en", "▁a|▁dog|.|< >|▁He|▁left|.", [4, 3]),  # a separator ends a sentence
        ("ja", "▁今日|は|。|元気|?|はい", [3, 2, 1]),
        ("en", "▁plan|▁B|\u00a0|.|▁It|▁runs|.", [4, 3]),
    ],
)
def test_sentence_lengths(language: str, subwords: str, lengths: list[int]) -> None:
    assert sentence_lengths(subwords.split("|"), language) == lengths


@pytest.mark.parametrize(
    ("algorithm", "sentences"),
    [
        ("bytes", ["今天很好。", "明天也好。", "再见！"]),
        ("bytes", ["Die Häuser z. B. Ämter.", " Über alles.", " Ja."]),
        ("huggingface", ["Dr. Smith paid 3.5 euros.", " He left, e.g. now.", " Yes."]),
        ("char", ["Dr. Smith paid 3.5 euros.", " He left.", " Yes."]),
    ],
)
def test_sentences_end_where_the_text_says_so(
    algorithm: str, sentences: list[str], tmp_path: Path
) -> None:
    text = "".join(sentences)
    config = TokenizerConfig(
        algorithm=cast(Algorithm, algorithm),
        vocab_size=None,
        file=word_piece_file(tmp_path / "file", [text]) if algorithm == "huggingface" else None,
    )
    tokenizer = Tokenizer.train(config, lambda: [(text, text)])
    language = "zh" if "。" in text else "de" if "ü" in text else "en"
    [subwords, *alone] = tokenizer.encode_source([text, *sentences])
    limits = SourceLimits(usual=max(map(len, alone)), language=language)
    parts = split_segments(subwords, None, tokenizer, limits, source=text)
    assert [part.subwords for part in parts] == alone


def test_no_part_ends_inside_a_character() -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(algorithm="bytes", vocab_size=None), lambda: [])
    [subwords] = tokenizer.encode_source(["今天很好明天也好"])
    parts = split_segments(subwords, None, tokenizer, SourceLimits(usual=10, language="zh"))
    texts = tokenizer.decode_source([part.subwords for part in parts])
    assert len(texts) == 3 and "".join(texts) == "今天很好明天也好"


def test_only_a_source_longer_than_usual_is_split() -> None:
    limits = SourceLimits(longest=100, usual=6)
    sentences = ["▁He", "▁came", ".", "▁It", "▁left", "."]
    assert limits.split(sentences) == [6]
    assert limits.split([*sentences, "▁So", "▁what", "."]) == [3, 3, 3]
    # One sentence is cut only if it is much longer.
    assert limits.split(["▁a"] * 7) == [7]
    assert limits.split(["▁a"] * 8) == [4, 4]


def test_a_model_of_whole_lines_splits_no_sentences() -> None:
    run = RunConfig(data=DataConfig(max_length=50, source="en_GB"))
    assert SourceLimits.trained(run, 20) == SourceLimits(usual=20, language="en")
    # An imported model does not know its text.
    assert SourceLimits.trained(run, None) == SourceLimits(usual=50, language="en")
    lines = MetricsConfig(test=("rougel",), validation=("rougel",), choose="rougel")
    features = TokenizerConfig(algorithm="char", features=";")
    for whole_lines in (replace(run, metrics=lines), replace(run, tokenizer=features)):
        limits = SourceLimits.trained(whole_lines, 20)
        assert limits == SourceLimits(language=None)
        # A line is cut where the positions of the model end, not at each sentence.
        translator = tiny_translator(max_length=40, algorithm="greedy", beam_size=1)
        translator = replace(translator, limits=limits)
        [translation] = translator.translate([" ".join(["a dog runs. two cats sleep."] * 6)])
        assert len(translation.source_tokens) == 108 and translation.parts == 3


def test_the_first_part_alone_has_the_prefix() -> None:
    asked = Constraints(prefix="ein", must=("Hund",), never=("Katze",))
    parts = split_segments([5, 6, 7, 8, 9], asked, tiny_tokenizer(), SourceLimits(2, 2))
    assert len(parts) > 1
    never = Constraints(never=("Katze",))
    divided = [replace(never, prefix="ein"), *[never] * (len(parts) - 1)]
    assert [part.constraints for part in parts] == divided


def test_scripts_without_blanks_are_joined_without_one() -> None:
    assert join_parts(["Ja .", "", "Nein"]) == "Ja . Nein"
    assert join_parts(["今日は。", "元気ですか？"]) == "今日は。元気ですか？"
    assert join_parts(["犬", "is a dog ."]) == "犬 is a dog ."
    assert join_parts(["今日 は 。", "はい"]) == "今日 は 。 はい"  # split into words


def test_a_long_line_does_not_hold_back_the_lines_before_it() -> None:
    long = "x" * LONG_LINE
    assert list(make_windows(["a", "b", long, "c"], None)) == [["a", "b"], [long], ["c"]]
