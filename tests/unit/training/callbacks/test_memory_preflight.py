"""The largest batch is tried before the first update, and nothing of it is left."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from tests.helpers.data.corpora import data_module, first_epoch, write_corpus
from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.fakes import fake_trainer
from tests.helpers.training.updates import module_settings
from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch
from transformer.data.datamodules.translation import TranslationData
from transformer.tasks.translation import TranslationModule
from transformer.training.callbacks.memory_preflight import MemoryPreflight


class Listening(TranslationModule):
    """Keeps the batches that it computes."""

    def __init__(self) -> None:
        model = tiny_transformer(source_vocab_size=268, target_vocab_size=268)
        super().__init__(**module_settings(model))
        self.tried_batches: list[Batch] = []

    def micro_loss(self, batch: Batch) -> Any:
        self.tried_batches.append(batch)
        return super().micro_loss(batch)

    def manual_backward(self, loss: torch.Tensor, *arguments: Any, **keywords: Any) -> None:
        loss.backward()


@pytest.fixture
def data(tmp_path: Path) -> TranslationData:
    module = data_module(write_corpus(tmp_path).parent)
    module.setup("fit")
    return module


def trainer(**changes: Any) -> Any:
    fake = fake_trainer(**changes)
    fake.precision_plugin.train_step_context = nullcontext
    return fake


@pytest.mark.parametrize(("accumulation", "times"), [(1, 1), (3, 2)])
def test_the_largest_batch_is_tried_with_every_layer_and_forgotten(
    data: TranslationData, accumulation: int, times: int
) -> None:
    module = Listening()
    module.model.encoder.layer_drop = module.model.decoder.layer_drop = 0.999
    layers = [*module.model.encoder.layers, *module.model.decoder.layers]
    computed = []
    for layer in layers:
        layer.register_forward_hook(lambda *_: computed.append(1))
    data.accumulation = accumulation
    module.trainer = trainer()
    MemoryPreflight(data).on_train_start(module.trainer, module)
    largest = max(batch.positions for batch in first_epoch(data))
    assert [batch.positions for batch in module.tried_batches] == [largest] * times
    assert len(computed) == times * len(layers)
    assert module.model.encoder.layer_drop == 0.999
    assert all(parameter.grad is None for parameter in module.parameters())


def test_ranks_that_plan_other_batches_do_not_begin(
    data: TranslationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(everything: list[str], mine: str) -> None:
        everything[:] = [mine, "another"]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    with pytest.raises(InputError, match="the ranks plan different batches"):
        MemoryPreflight(data).on_train_start(trainer(world_size=2), Listening())


def test_an_optimizer_whose_state_does_not_fit_is_named(
    data: TranslationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*arguments: Any, **keywords: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    module = Listening()
    begins = trainer(optimizers=[Mock(state={})])
    monkeypatch.setattr(torch, "empty_like", no_memory)
    with pytest.raises(InputError, match="state of the optimizer"):
        MemoryPreflight(data).on_train_start(begins, module)
    assert not module.tried_batches
