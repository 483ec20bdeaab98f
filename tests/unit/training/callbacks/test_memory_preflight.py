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


def test_the_largest_batch_is_tried_and_forgotten(data: TranslationData) -> None:
    module = Listening()
    module.trainer = trainer()
    MemoryPreflight(data).on_train_start(module.trainer, module)
    (tried,) = module.tried_batches
    assert tried.positions == max(batch.positions for batch in first_epoch(data))
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize("ranks", [1, 2])
def test_only_one_process_alone_halves_a_batch(
    data: TranslationData, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    def no_memory(loss: torch.Tensor) -> None:
        if module.accumulate.max_positions == float("inf"):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        loss.backward()

    module = Listening()
    monkeypatch.setattr(module, "manual_backward", no_memory)
    monkeypatch.setattr(torch.distributed, "all_gather_object", lambda into, mine: None)
    begins = module.trainer = trainer(world_size=ranks)
    # Lightning calls the modules' after all callbacks', which must not be too late.
    module.on_fit_start()
    if ranks > 1:
        with pytest.raises(InputError, match="one of several ranks cannot halve"):
            MemoryPreflight(data).on_train_start(begins, module)
    else:
        MemoryPreflight(data).on_train_start(begins, module)
        whole, *halves = [one.size for one in module.tried_batches]
        assert len(halves) == 2 and sum(halves) == whole


def test_two_micro_batches_are_tried_with_every_layer(data: TranslationData) -> None:
    module = Listening()
    module.model.encoder.layer_drop = module.model.decoder.layer_drop = 0.999
    kept = []
    for layer in (*module.model.encoder.layers, *module.model.decoder.layers):
        layer.register_forward_hook(lambda *_: kept.append(1))
    data.accumulation = 3
    module.trainer = trainer()
    MemoryPreflight(data).on_train_start(module.trainer, module)
    first, second = module.tried_batches
    assert first is second
    layers = len(module.model.encoder.layers) + len(module.model.decoder.layers)
    assert len(kept) == 2 * layers
    assert module.model.encoder.layer_drop == 0.999


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
    with pytest.raises(InputError, match=r"^the device has no memory for .* optimizer.*; take"):
        MemoryPreflight(data).on_train_start(begins, module)
    assert not module.tried_batches
