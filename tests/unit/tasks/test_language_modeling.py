"""Perplexity by hand: which events are predicted, and what they are shared among."""

import math
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from tests.helpers.data.corpora import first_epoch
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer
from tests.helpers.runs.runs import composed
from transformer.common.errors import InputError
from transformer.decoding.prediction import LanguageModel
from transformer.settings.tokenizer import EOS
from transformer.tasks.language_modeling import LanguageModeling, perplexities

ROWS = [[5, 6, 7], [], [8], [9, 10, 11, 12, 13]]


def test_one_likelihood_is_shared_among_tokens_or_words() -> None:
    token, word = perplexities(26.0, ROWS, 5)
    assert (token.name, word.name) == ("perplexity", "word_perplexity")
    assert token.value == pytest.approx(math.exp(26 / (9 + 4)))
    assert word.value == pytest.approx(math.exp(26 / (5 + 4)))
    assert token.signature == "per:subwords+ends|count:13"
    assert word.to_json()["score"] == round(word.value, 4)


def task(folder: Path, *overrides: str) -> LanguageModeling:
    (folder / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    text = [f"data.{name}={folder / 'a.tsv'}" for name in ("train", "validation", "test")]
    alone = ["task=language_modeling", "model.decoder_layers=0"]
    config = composed(["data=files", *text, *alone, *overrides], folder / "cache")
    return LanguageModeling(config, tiny_tokenizer())


def test_it_reads_the_target_side(tmp_path: Path) -> None:
    task_ = task(tmp_path, "model.source_token_dropout=0.2")
    task_.data.setup("fit")
    expected = tiny_tokenizer().encode_target([target for _, target in PAIRS])
    model = task_.module.model
    assert model.embedding.token_dropout.probability == 0.2
    predicted: list[int] = []
    for batch in first_epoch(task_.data):
        hidden, target = task_.module.predictions(batch)
        assert len(hidden) == len(target)
        predicted += target.tolist()
    assert sorted(predicted) == sorted(subword for row in expected for subword in [*row, EOS])
    assert model.config.source_vocab_size == model.config.target_vocab_size == 310


def test_blank_lines_are_no_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Mock(log_probabilities=lambda rows: [torch.full((len(row) + 1,), -2.0) for row in rows])
    monkeypatch.setattr(LanguageModel, "load", lambda *_, **__: model)
    task_ = task(tmp_path)
    counts = []
    for end in ("", "\t\n\t \n"):
        with (tmp_path / "a.tsv").open("a") as file:
            file.write(end)
        counts.append(
            [score.signature for score in task_.evaluator(tmp_path, "cpu")("test").scores]
        )
    assert counts[0] == counts[1]
    (tmp_path / "a.tsv").write_text("\t\n")
    with pytest.raises(InputError, match="test: all texts are empty"):
        task_.evaluator(tmp_path, "cpu")("test")


def test_settings_of_translation_are_refused(tmp_path: Path) -> None:
    alone = ["task=language_modeling", "model.decoder_layers=0"]
    for override in (
        "loss=r_drop",
        "model.decoder_layers=2",
        "model.decoder_layer=ssru",
        "data.alignment=links",
    ):
        with pytest.raises(InputError, match="experiment=pocket_lm"):
            LanguageModeling(composed([*alone, override], tmp_path))
    # A second text does nothing in a resumed run.
    LanguageModeling(composed([*alone, "data.alignment=links"], tmp_path), tiny_tokenizer())
