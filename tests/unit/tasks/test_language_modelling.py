"""Perplexity by hand: which events are predicted, and what they are shared among."""

import math
from pathlib import Path

import pytest

from tests.helpers.corpora import first_epoch
from tests.helpers.runs import composed
from tests.helpers.translators import PAIRS, tiny_tokenizer
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import EOS
from transformer.tasks.language_modelling import (
    LanguageModelling,
    perplexities,
)

ROWS = [[5, 6, 7], [], [8], [9, 10, 11, 12, 13]]


def test_one_likelihood_is_shared_among_tokens_or_words() -> None:
    token, word = perplexities("x_", 26.0, ROWS, 5, "|y")
    assert (token.name, word.name) == ("x_perplexity", "x_word_perplexity")
    assert token.value == pytest.approx(math.exp(26 / (9 + 4)))
    assert word.value == pytest.approx(math.exp(26 / (5 + 4)))
    assert token.signature == "per:subwords+ends|count:13|y"
    assert word.to_json()["score"] == round(word.value, 4)


def task(folder: Path, *overrides: str) -> LanguageModelling:
    (folder / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    text = [f"data.{name}={folder / 'a.tsv'}" for name in ("train", "validation", "test")]
    alone = ["task=language_modelling", "model.decoder_layers=0"]
    config = composed(["data=files", *text, *alone, *overrides], folder / "cache")
    return LanguageModelling(config, tiny_tokenizer())


def test_it_reads_the_target_side(tmp_path: Path) -> None:
    task_ = task(tmp_path)
    task_.data.setup("fit")
    expected = tiny_tokenizer().encode_target([target for _, target in PAIRS])
    assert task_.data.training_targets(100) == expected
    assert task_.data.training_targets(2) == expected[:2]
    model = task_.module.model
    predicted: list[int] = []
    for batch in first_epoch(task_.data):
        hidden, right = task_.module.predictions(batch)
        assert len(hidden) == len(right)
        predicted += right.tolist()
    assert sorted(predicted) == sorted(subword for row in expected for subword in [*row, EOS])
    assert model.config.source_vocab_size == model.config.target_vocab_size == 310


@pytest.mark.parametrize(
    "override", ["loss=simcut", "model.target_token_dropout=0.1", "model.decoder_layers=2"]
)
def test_settings_of_translation_alone_raise(tmp_path: Path, override: str) -> None:
    with pytest.raises(InputError, match="task=language_modelling"):
        task(tmp_path, override)


def test_its_tokens_are_dropped_as_those_of_a_source(tmp_path: Path) -> None:
    model = task(tmp_path, "model.source_token_dropout=0.2").module.model
    assert model.embedding.token_dropout.probability == 0.2


def test_only_learned_positions_end(tmp_path: Path) -> None:
    task(tmp_path, "model.max_length=3").data.prepare_data()
    with pytest.raises(InputError, match=r"a\.tsv:1: .* set model\.max_length="):
        task(tmp_path, "model.max_length=3", "model.positions=learned").data.prepare_data()


@pytest.mark.parametrize("override", ["data.alignment=links", "tokenizer.joint=false"])
def test_what_two_sides_have_is_refused_where_a_run_begins(tmp_path: Path, override: str) -> None:
    alone = ["task=language_modelling", "model.decoder_layers=0"]
    config = composed([*alone, override], tmp_path)
    with pytest.raises(
        InputError, match="task=language_modelling has one stack and one text and does not use"
    ):
        LanguageModelling(config)
    LanguageModelling(config, tiny_tokenizer())
