"""Scores of real translations at a validation, with a translator that looks sentences up."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tests.helpers.data.corpora import data_config, tokenizer_config
from tests.helpers.decoding.metrics import RAW
from tests.helpers.training.fakes import fake_module, fake_trainer, logged
from tests.helpers.training.updates import any_tokenizer
from transformer.data.corpora.evaluation_text import Texts
from transformer.data.datamodules.translation import TranslationData
from transformer.decoding.translator import BLANK, Candidate, Translation, Translator
from transformer.evaluation.metrics import score
from transformer.quality.failures.flags import Output
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig
from transformer.settings.sources import VectorsConfig
from transformer.tasks.translation import TranslateValidation, TranslationModule

SOURCES = ["ein Hund", "zwei", "drei Katzen", "vier", "fünf"]
REFERENCES = ["a dog runs fast .", "two birds sing now .", "three cats .", "four .", "five ."]
TEXTS = Texts(SOURCES, [(reference,) for reference in REFERENCES], {})


class Dictionary(Translator):
    """Translates a source into its reference, but for the last, which reaches its limit."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        vars(self)["tokenizer"] = any_tokenizer()

    def translate(self, texts: Sequence[str], attention: bool = False) -> list[Translation]:
        self.asked.append(list(texts))
        hypotheses = dict(zip(SOURCES, HYPOTHESES, strict=True))
        return [translation(text, hypotheses[text]) for text in texts]


def translation(source: str, text: str) -> Translation:
    best = Candidate(text, 0.0, 0.0, (), 1, is_unfinished=source == SOURCES[-1])
    return replace(BLANK, text=text, nbest=(best,), source_tokens=(source,))


HYPOTHESES = [*REFERENCES[:-1], "six !"]


def validating(
    translator: Any, texts: Texts, metrics: MetricsConfig, *, samples: int
) -> TranslateValidation:
    """The callback after the start of a fit."""
    validation = TranslateValidation(metrics, samples)
    trainer = fake_trainer(datamodule=Mock(texts=lambda split: texts))
    validation.on_validation_start(trainer, Mock(translator=lambda: translator))
    return validation


def test_data_and_module_of_a_program_read_files_as_train_does(tmp_path: Path) -> None:
    """Sources were the letters of their paths where only ``train`` had completed the config."""
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    (tmp_path / "text.tsv").write_text("a.npy\tone\n")
    text = str(tmp_path / "text.tsv")
    data = data_config(
        tmp_path,
        train=text,
        validation=text,
        source_kind="vectors",
        vectors=VectorsConfig(channels=3),
    )
    config = RunConfig(data=data, tokenizer=tokenizer_config(algorithm="words", vocab_size=None))
    module = TranslationModule(config, TranslationData(config).tokenizer)
    assert module.tokenizer.reads_files
    assert module.config.model.front_end == "linear"


def test_validation_scores_as_the_run_says() -> None:
    module, metrics = fake_module(), MetricsConfig(tokenize="char", lowercase=True)
    ranges = {"first": range(2), "rest": range(2, len(SOURCES))}
    texts = TEXTS._replace(ranges=ranges)
    validation = validating(Dictionary(), texts, metrics, samples=0)
    validation.on_validation_epoch_start(fake_trainer(), module)
    indices = {"": slice(None), "_first": slice(2), "_rest": slice(2, None)}
    for name, position in indices.items():
        texts = HYPOTHESES[position], REFERENCES[position]
        (bleu,) = score(*texts, ("bleu",), config=metrics)
        assert logged(module)[0][f"val/bleu{name}"] == bleu.value
    assert bleu.value != score(*texts, ("bleu",), config=RAW)[0].value


@pytest.mark.parametrize("world_size", [1, 7])
def test_the_ranks_share_the_sentences_and_log_all_scores(
    world_size: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shares: list[Any] = []
    for rank in range(world_size):
        sources = SOURCES[rank::world_size]
        outputs = [
            Output(HYPOTHESES[SOURCES.index(source)], 0.0, source == SOURCES[-1])
            for source in sources
        ]
        shares.append((outputs, (int(SOURCES[-1] in sources), len(sources))))

    def all_gather_object(gathered: list[Any], share: Any) -> None:
        assert share == shares[trainer.global_rank]
        gathered[:] = shares

    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather_object)
    caplog.set_level(logging.INFO)
    asked = []
    values = []
    for rank in range(world_size):
        translator = Dictionary()
        module = fake_module()
        trainer = fake_trainer(
            global_step=7, global_rank=rank, world_size=world_size, is_global_zero=not rank
        )
        validation = validating(translator, TEXTS, RAW, samples=2)
        validation.on_validation_epoch_start(trainer, module)
        asked += translator.asked[0]
        values += logged(module)
        assert validation.latest is not None
        assert [output.text for output in validation.latest.outputs] == HYPOTHESES
    assert sorted(asked) == sorted(SOURCES)  # each once
    bleu, chrf = score(HYPOTHESES, REFERENCES, ("bleu", "chrf"), config=RAW)
    assert 0 < bleu.value < 100
    # Every rank logs the score of all sentences in their own order.
    assert values == [{"val/bleu": bleu.value, "val/chrf": chrf.value}] * world_size
    limit, scores, _, second_sample = caplog.messages
    assert limit.startswith("1 of 5 outputs reached the maximum length")
    assert f"update 7, epoch 0.7: BLEU {bleu.value:.2f}" in scores
    assert "zwei => two birds sing now . (reference: two birds" in second_sample
