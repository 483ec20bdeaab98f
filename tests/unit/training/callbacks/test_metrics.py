"""What the callbacks count, log and ask for, with a trainer that only records."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from tests.helpers.decoding.metrics import RAW
from tests.helpers.training.fakes import fake_module, fake_trainer, logged, one_process
from tests.helpers.training.updates import any_tokenizer
from transformer.data.batching.batch import collate
from transformer.data.batching.loader import Update
from transformer.data.corpora.evaluation_text import Texts
from transformer.decoding.translator import BLANK, Candidate, Translation, Translator
from transformer.evaluation.metrics import score
from transformer.quality.failures.flags import Output
from transformer.settings.metrics import MetricsConfig
from transformer.tasks.translation import TranslateValidation
from transformer.training.callbacks.metrics import Measure
from transformer.training.update import Outcome, Totals

SOURCES = ["ein Hund", "zwei", "drei Katzen", "vier", "fünf"]
REFERENCES = ["a dog runs fast .", "two birds sing now .", "three cats .", "four .", "five ."]
TEXTS = Texts(SOURCES, [(one,) for one in REFERENCES], {})


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


# Rows of 3 and 2 source and of 2 and 4 target tokens, end of sentence included.
UPDATE = Update.of([collate([[5, 6], [7]], [[5], [6, 7, 8]])], [0])


def outputs_of(loss: float, *, tokens: int = 6, good: bool = True, **sums: Any) -> dict[str, Any]:
    """The outputs of a training step on one rank."""
    tensors = {name: torch.tensor(value) for name, value in ({"loss": loss} | sums).items()}
    norm = torch.tensor(0.5)
    return {"outcome": Outcome(torch.tensor(good), norm, Totals(tokens, tensors), 0.125, 1)}


def run_update(
    measure: Measure, trainer: Any, module: Any, loss: float, *, good: bool = True, **sums: Any
) -> None:
    measure.on_train_batch_start(trainer, module, UPDATE, 0)
    trainer.global_step += 1
    outputs = outputs_of(loss, good=good, **sums)
    measure.on_train_batch_end(trainer, module, outputs, UPDATE, 0)


def test_measure_counts_since_it_logged_last(clock: Clock) -> None:
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    for loss in (12.0, 18.0):
        clock.now += 1
        run_update(measure, trainer, module, loss)
    assert len(logged(module)) == 1
    values = logged(module)[0]
    assert values["train/loss"] == (12 + 18) / (2 * 6)
    # 5 of 6 source and 6 of 8 target places are real.
    assert values["train/padding"] == pytest.approx(1 - 11 / 14)
    assert values["lr"] == 0.125
    for _ in range(2):
        clock.now += 3
        run_update(measure, trainer, module, 6.0)
    assert [v["train/loss"] for v in logged(module)] == [2.5, 1.0]
    # The clock starts with the first batch, and goes on from one log to the next.
    assert [v["train/tokens_per_second"] for v in logged(module)] == [12 / 1, 12 / 6]
    for loss, good in ((float("nan"), False), (12.0, True)):
        clock.now += 1
        run_update(measure, trainer, module, loss, good=good)
    assert logged(module)[2]["train/loss"] == 2.0
    assert logged(module)[2]["train/tokens_per_second"] == 12 / 2


def test_measure_logs_the_means_of_other_losses(clock: Clock) -> None:
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    for summed, linked in ((6.0, 2.0), (3.0, 4.0)):
        clock.now += 1
        run_update(measure, trainer, module, 1.0, alignment=[summed, linked])
    for _ in range(2):
        clock.now += 1
        run_update(measure, trainer, module, 1.0)
    with_links, without = logged(module)
    assert with_links["train/alignment_loss"] == (6 + 3) / (2 + 4)
    assert "train/alignment_loss" not in without
    # The divergence of two passes.
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    for divergence in (6.0, 3.0):
        clock.now += 1
        run_update(measure, trainer, module, 1.0, consistency=divergence)
    assert logged(module)[0]["train/consistency"] == (6 + 3) / (2 * 6)
    run_update(measure, trainer, module, 1.0, consistency=5.0)
    checkpoint: dict[str, Any] = {}
    measure.on_save_checkpoint(trainer, module, checkpoint)
    resumed = Measure()
    resumed.on_load_checkpoint(trainer, module, checkpoint)
    resumed.on_train_batch_start(trainer, module, UPDATE, 0)
    clock.now += 1
    run_update(resumed, trainer, module, 1.0, consistency=1.0)
    assert logged(module)[-1]["train/consistency"] == (5 + 1) / (2 * 6)


def test_measure_leaves_out_the_time_of_a_validation(clock: Clock) -> None:
    measure, trainer, module = Measure(), fake_trainer(), fake_module()
    outputs = outputs_of(1.0)
    measure.on_train_batch_start(trainer, module, UPDATE, 0)
    clock.now += 2
    trainer.global_step = 1
    measure.on_train_batch_end(trainer, module, outputs, UPDATE, 0)
    measure.on_validation_start(trainer, module)
    clock.now += 1000
    measure.on_train_batch_start(trainer, module, UPDATE, 1)
    clock.now += 1
    trainer.global_step = 2
    measure.on_train_batch_end(trainer, module, outputs, UPDATE, 1)
    assert logged(module)[0]["train/tokens_per_second"] == pytest.approx(12 / 3)


def test_a_resumed_run_logs_the_speed_since_its_start(clock: Clock) -> None:
    checkpoints = []
    for seconds in (2, 1000):
        measure, trainer, module = Measure(), fake_trainer(), fake_module()
        measure.on_train_batch_start(trainer, module, UPDATE, 0)
        clock.now += seconds
        run_update(measure, trainer, module, 1.0)
        checkpoints.append(dict[str, Any]())
        measure.on_save_checkpoint(trainer, module, checkpoints[-1])
    # What a run leaves behind does not hang on how long it took.
    assert checkpoints[0] == checkpoints[1]
    resumed = Measure()
    resumed.on_load_checkpoint(trainer, module, checkpoints[0])
    resumed.on_train_batch_start(trainer, module, UPDATE, 1)
    clock.now += 3
    run_update(resumed, trainer, module, 2.0)
    assert logged(module)[0]["train/tokens_per_second"] == 6 / 3
    assert logged(module)[0]["train/loss"] == (1 + 2) / (2 * 6)
    # The saved counts are sums over the ranks; those of the resumed ranks have the same sums.
    ranks = [Measure(), Measure()]
    for rank, restored in enumerate(ranks):
        trainer = fake_trainer(is_global_zero=not rank)
        restored.on_load_checkpoint(trainer, module, checkpoints[0])
    assert sum(restored.real for restored in ranks) == 11
    assert sum(restored.padded for restored in ranks) == 14


def test_measure_counts_over_all_micro_batches_and_ranks(clock: Clock) -> None:
    measure, module = Measure(), fake_module()
    trainer = fake_trainer(log_every_n_steps=1)
    # Another rank has had a batch without padding, of 30 tokens.
    other = torch.tensor([30.0, 30.0], dtype=torch.float64)
    trainer.strategy.reduce = lambda counted, reduce_op: counted + other
    measure.on_train_batch_start(trainer, module, UPDATE, 0)
    trainer.global_step, clock.now = 1, clock.now + 2
    twice = Update.of(UPDATE.batches * 2, [0, 2])
    outputs = outputs_of(54.0, tokens=27)
    measure.on_train_batch_end(trainer, module, outputs, twice, 0)
    (values,) = logged(module)
    assert values["train/loss"] == 2.0
    assert values["train/tokens_per_second"] == 27 / 2
    assert values["train/padding"] == pytest.approx(1 - (2 * 11 + 30) / (2 * 14 + 30))


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
    best = Candidate(text, 0.0, 0.0, (), is_unfinished=source == SOURCES[-1])
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


def test_validation_scores_real_translations(caplog: pytest.LogCaptureFixture) -> None:
    translator, module = Dictionary(), fake_module()
    validation = validating(translator, TEXTS, RAW, samples=2)
    with caplog.at_level(logging.INFO):
        validation.on_validation_epoch_start(fake_trainer(global_step=7), module)
    bleu, chrf = score(HYPOTHESES, REFERENCES, ("bleu", "chrf"), config=RAW)
    assert 0 < bleu.value < 100
    assert logged(module) == [{"val/bleu": bleu.value, "val/chrf": chrf.value}]
    assert validation.latest is not None
    assert [output.text for output in validation.latest.outputs] == HYPOTHESES
    assert caplog.messages[0].startswith("1 of 5 outputs reached the maximum length and")
    assert f"update 7, epoch 0.7: BLEU {bleu.value:.2f}" in caplog.messages[1]
    assert len(caplog.messages) == 4
    assert "zwei => two birds sing now . (reference: two birds" in caplog.messages[3]


def test_samples_of_long_texts_are_shortened(caplog: pytest.LogCaptureFixture) -> None:
    texts = Texts(SOURCES, [("x" * 1300,)] * len(SOURCES), {})
    validation = validating(Dictionary(), texts, RAW, samples=1)
    with caplog.at_level(logging.INFO):
        validation.on_validation_epoch_start(fake_trainer(), fake_module())
    assert caplog.messages[-1].endswith(f"(reference: {'x' * 199}…)")


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


def test_validation_on_a_gpu_searches_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow: list[bool] = []

    class Watched(Dictionary):
        def translate(self, texts: Sequence[str], attention: bool = False) -> list[Translation]:
            narrow.append(torch.is_autocast_enabled("cuda"))
            return super().translate(texts)

    # Without a GPU torch would refuse it.
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    on_gpu = one_process()
    on_gpu.root_device = torch.device("cuda")
    validation = validating(Watched(), TEXTS, RAW, samples=0)
    trainer = fake_trainer(strategy=on_gpu, precision="bf16-mixed")
    validation.on_validation_epoch_start(trainer, fake_module())
    assert set(narrow) == {True}


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_the_ranks_share_the_sentences(
    world_size: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shares: dict[int, Any] = {}
    for rank in range(world_size):
        sources = SOURCES[rank::world_size]
        outputs = [
            Output(HYPOTHESES[SOURCES.index(source)], 0.0, source == SOURCES[-1])
            for source in sources
        ]
        shares[rank] = outputs, (int(SOURCES[-1] in sources), len(sources))

    def all_gather_object(gathered: list[Any], own: Any) -> None:
        assert own == shares[trainer.global_rank]
        gathered[:] = [shares[rank] for rank in range(world_size)]

    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather_object)
    asked, values = [], []
    for rank in range(world_size):
        translator, module = Dictionary(), fake_module()
        trainer = fake_trainer(global_rank=rank, world_size=world_size, is_global_zero=not rank)
        validation = validating(translator, TEXTS, RAW, samples=0)
        validation.on_validation_epoch_start(trainer, module)
        asked += translator.asked[0]
        values += logged(module)
    assert sorted(asked) == sorted(SOURCES)  # each once
    bleu, chrf = score(HYPOTHESES, REFERENCES, ("bleu", "chrf"), config=RAW)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [line.startswith("1 of 5 outputs reached the maximum") for line in warnings] == [True]
    # Every rank logs the score of all sentences in their own order.
    assert values == [{"val/bleu": bleu.value, "val/chrf": chrf.value}] * world_size
