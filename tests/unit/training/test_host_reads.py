"""On a GPU the host reads nothing in a micro-batch, and at most once in an update."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import optimizer

from tests.helpers.model.host_reads import HostReads
from tests.helpers.model.models import tiny_config, tiny_transformer
from tests.helpers.training.fakes import fake_trainer
from tests.helpers.training.updates import (
    loss_config,
    module_settings,
    translation_module,
)
from tests.unit.model.test_options import OTHERS, VECTORS
from transformer.data.batching.batch import collate, collate_tagged
from transformer.data.batching.loader import Update
from transformer.model.single_stack import build_single_stack
from transformer.settings.data import DataConfig
from transformer.settings.training import OptimizerConfig
from transformer.tasks.language_modeling import LanguageModule
from transformer.tasks.tagging import TaggingModule
from transformer.training.callbacks.metrics import Measure
from transformer.training.layer_wrappers import recompute_layers
from transformer.training.optimization import build_optimizer
from transformer.training.update import UpdateModule

SOURCES, TARGETS = [[7, 8, 9, 10, 11], [5]], [[6, 8, 4], [9, 9, 9, 9]]
PAIRS = collate(SOURCES, TARGETS)
LINKS = [np.eye(len(t), len(s), dtype=bool) for s, t in zip(SOURCES, TARGETS, strict=True)]
TAGGED = collate_tagged([[7, 8, 9], [5]], [[1, -1, 2], [0]])

R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}
LOSSES: list[dict[str, Any]] = [
    {"chunk": 0},
    {"chunk": 3, "alignment_weight": 0.5},
    R_DROP | {"chunk": 3, "bfloat16": True},
]


def on_device(module: UpdateModule) -> UpdateModule:
    return module.to("meta").train()


def forward_and_backward(module: UpdateModule, batch: Any) -> None:
    """Forward and backward, without any read."""
    moved = batch.to("meta")
    with HostReads() as host:
        loss, tokens, sums = module.micro_loss(moved)
        loss.backward()
    assert host.copies == 0
    assert tokens == len(batch.labeled)
    assert {value.device.type for value in sums.values()} == {"meta"}
    assert any(parameter.grad is not None for parameter in module.parameters())


# torch refuses flex_attention on the meta device.
@pytest.mark.thorough
@pytest.mark.usefixtures("unchecked")  # tests of the options check the shapes
@pytest.mark.parametrize("changes", [m for m in OTHERS if "attention=flex" not in str(m.id)])
def test_no_option_of_a_model_reads(changes: dict[str, Any]) -> None:
    model = tiny_transformer(**changes)
    if model.config.front_end is None:
        module, batch = translation_module(model), PAIRS
    else:
        kind = "image" if model.config.front_end == "patches" else "speech"
        data = DataConfig("files", train="pairs.tsv", source_kind=kind)
        module = translation_module(model, data=data)
        batch = collate([VECTORS[0].numpy(), VECTORS[1, :4].numpy()], TARGETS)
    forward_and_backward(on_device(module), batch)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_loss_reads(loss: dict[str, Any]) -> None:
    module = translation_module(tiny_transformer(dropout=0.1), loss=loss_config(**loss))
    if "alignment_weight" in loss:
        recompute_layers(module.model, module.guided_attention)
    forward_and_backward(on_device(module), collate(SOURCES, TARGETS, LINKS))


@pytest.mark.parametrize(
    ("kind", "causal", "batch"), [(LanguageModule, True, PAIRS), (TaggingModule, False, TAGGED)]
)
def test_no_single_stack_and_no_validation_reads(
    kind: type[UpdateModule], causal: bool, batch: Any
) -> None:
    model = build_single_stack(tiny_config(), causal=causal)
    module = on_device(kind(**module_settings(model)))
    forward_and_backward(module, batch)
    moved = batch.to("meta")
    with HostReads() as host, torch.no_grad():
        module.eval().validation_step(moved, 0)
    assert host.copies == 0


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_each_outcome_is_read_once_and_late(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a trainer and an optimizer that work on the device."""
    monkeypatch.setattr(optimizer, "_get_fused_kernels_supported_devices", lambda: ["meta"])
    model = tiny_transformer(dropout=0.1)
    module = on_device(translation_module(model, clip=1.0, loss=loss_config(chunk=3)))
    module._trainer = trainer = fake_trainer()
    stepping = build_optimizer(OptimizerConfig(name, weight_decay=0.1), module.model)

    def step() -> None:
        stepping.step()
        trainer.global_step += 1

    stepped = SimpleNamespace(optimizer=stepping, param_groups=stepping.param_groups, step=step)
    monkeypatch.setattr(module, "optimizers", lambda: stepped)
    monkeypatch.setattr(module, "lr_schedulers", lambda: SimpleNamespace(step=lambda: None))
    monkeypatch.setattr(module, "manual_backward", Tensor.backward)
    monkeypatch.setattr(module, "log_dict", lambda values: None)
    measure = Measure()
    for index in range(4):
        batch = Update.of([PAIRS, PAIRS], [0, 1]).to("meta")
        measure.on_train_batch_start(trainer, module, batch, index)
        with HostReads() as host:
            outputs = module.training_step(batch, index)
        # That of the update before, unless the log has read it, which is written every second time.
        assert host.copies == index % 2
        with HostReads() as host:
            measure.on_train_batch_end(trainer, module, outputs, batch, index)
        assert host.copies == index % 2
        assert len(module._detector.state_dict()["losses"]) == index + index % 2
