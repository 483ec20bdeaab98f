"""The budget that fits: found in few attempts, without a number that does not fit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from tests.helpers.runs.runs import SMALL, composed, corpus_overrides
from transformer.common.errors import InputError
from transformer.runs import auto_batch_size
from transformer.runs.auto_batch_size import can_train, largest_fitting, resolve_device, with_budget
from transformer.runs.train import fit
from transformer.settings.data import BUDGET_STEP
from transformer.settings.run import RunConfig
from transformer.tasks.registry import make_task


@pytest.mark.parametrize(
    ("minimum", "limit"), [(1024, 1024), (1024, 25_000), (1024, 10**9), (5120, 9000)]
)
def test_the_largest_budget_that_fits_less_a_tenth(minimum: int, limit: int) -> None:
    tried: list[int] = []

    def fits(budget: int) -> bool:
        tried.append(budget)
        return budget <= limit

    budget = largest_fitting(fits, minimum)
    bound = min(limit, 2**20)
    assert budget % BUDGET_STEP == 0
    assert min(bound * 0.9 * 15 / 16 - BUDGET_STEP, bound) - BUDGET_STEP <= budget <= bound
    assert len(tried) == len(set(tried)) <= 16 and min(tried) == minimum


def test_a_device_without_room_is_named() -> None:
    with pytest.raises(InputError, match="no memory for batches of 2048 tokens"):
        largest_fitting(lambda budget: False, 2048)


def auto(tmp_path: Path, *overrides: str) -> RunConfig:
    return composed(["data.batch_tokens=auto", *overrides], tmp_path)


def on_machine_with(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


@pytest.mark.parametrize(
    ("gpus", "devices", "number"),
    [(4, "1", 0), (4, "[2]", 2), (4, "'2,'", 2), (1, "auto", 0)],
)
def test_the_gpu_that_trains_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, devices: str, number: int
) -> None:
    on_machine_with(gpus, monkeypatch)
    config = auto(tmp_path, "trainer=gpu", f"trainer.devices={devices}")
    assert resolve_device(config) == torch.device("cuda", number)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], r"trainer\.accelerator=cpu, .*set a number"),
        (["trainer=gpu", "trainer.devices='2'"], "memory of one GPU"),
        (["trainer=ddp", "trainer.devices=auto"], "memory of one GPU"),
        (["trainer=ddp", "trainer.devices=[0,1]"], "memory of one GPU"),
        (["trainer=gpu", "trainer.num_nodes=2"], "memory of one GPU"),
        (["trainer=gpu", "trainer.devices=many"], r"trainer\.devices=many"),
    ],
)
def test_other_devices_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], message: str
) -> None:
    on_machine_with(2, monkeypatch)
    with pytest.raises(InputError, match=message):
        resolve_device(auto(tmp_path, *overrides))


@pytest.mark.parametrize(
    "overrides", [["data=files", "data.streaming=true", "trainer=gpu"], ["trainer=fsdp"]]
)
def test_auto_is_refused_before_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str]
) -> None:
    on_machine_with(1, monkeypatch)
    with pytest.raises(InputError, match=r"one GPU with the whole text; .* trainer=fsdp"):
        fit(auto(tmp_path / "cache", *overrides), tmp_path)
    torch.set_float32_matmul_precision("highest")
    assert not list(tmp_path.iterdir())


def test_auto_is_no_number_until_it_is_measured(tmp_path: Path) -> None:
    config = composed(["data.batch_tokens=auto", "data.max_length=1500"], tmp_path)
    assert (config.data.batch_tokens, config.data.budget) == ("auto", 2048)
    measured = with_budget(config, 9216).data
    assert (measured.batch_tokens, measured.budget) == (9216, 9216)
    with pytest.raises(InputError, match=r"data\.batch_tokens='much' must be"):
        composed(["data.batch_tokens=much"], tmp_path)


@pytest.mark.parametrize("sampling", [pytest.param(0.0, marks=pytest.mark.thorough), 0.3])
def test_an_attempt_trains_on_the_largest_batch_of_the_plan(
    tmp_path: Path, sampling: float
) -> None:
    settings = [*SMALL, *corpus_overrides(tmp_path), f"tokenizer.sampling={sampling}"]
    config = composed(settings, tmp_path / "cache")
    task: Any = make_task(config)
    task.data.prepare_data()
    seen: list[int] = []
    learn = task.module.micro_loss

    def micro_loss(batch: Any) -> Any:
        seen.append(batch.positions)
        if batch.positions > 3000:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return learn(batch)

    task.module.micro_loss = micro_loss
    for budget, fits in ((1024, True), (4096, False)):
        data = make_task(with_budget(config, budget)).data
        data.setup("fit")
        batch = data.largest_batch()
        assert can_train(task.module, batch, torch.device("cpu"), config) is fits
    small, large = seen
    assert 800 < small <= 2048
    assert 3 < large / small < 5
    assert all(parameter.grad is None for parameter in task.module.parameters())


class Weights(Callback):
    """Keeps those that a run begins with."""

    first: dict[str, torch.Tensor]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.first = {name: w.clone() for name, w in pl_module.state_dict().items()}


@pytest.mark.thorough
def test_a_measured_run_is_the_run_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*SMALL, *corpus_overrides(tmp_path), "trainer.max_steps=1"]
    monkeypatch.setattr(auto_batch_size, "resolve_device", lambda config: torch.device("cpu"))
    fitting = "transformer.runs.auto_batch_size.largest_fitting"
    monkeypatch.setattr(fitting, lambda fits, least: least if fits(least) else 0)
    begun = {}
    for budget in ("1024", "auto"):
        weights = Weights()
        config = composed([*settings, f"data.batch_tokens={budget}"], tmp_path / "cache")
        fit(config, tmp_path / budget, [weights])
        begun[budget] = weights.first
    assert begun["auto"].keys() == begun["1024"].keys()
    assert all(torch.equal(weight, begun["1024"][name]) for name, weight in begun["auto"].items())
    # A run that goes on measures no more.
    monkeypatch.setattr(fitting, lambda fits, least: pytest.fail("measured again"))
    resumed = [*settings, "data.batch_tokens=auto", f"checkpoint={tmp_path / 'auto'}"]
    _, task, _ = fit(composed(resumed, tmp_path / "cache"), tmp_path / "auto")
    assert task.config.data.batch_tokens == 1024
