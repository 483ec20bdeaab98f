"""The budget that fits: found in few attempts, without a number that does not fit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.runs.runs import SMALL, composed, corpus_overrides
from transformer.common.errors import InputError
from transformer.runs import auto_batch_size
from transformer.runs.auto_batch_size import can_train, largest_fitting, resolve_device, with_budget
from transformer.runs.train import fit
from transformer.settings.data import BUDGET_STEP
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
    with pytest.raises(InputError, match=f"no memory for batches of {minimum} tokens"):
        largest_fitting(lambda budget: False, minimum)


@pytest.mark.parametrize(
    ("gpus", "overrides", "number"),
    [
        (4, ["trainer=gpu", "trainer.devices=1"], 0),
        (4, ["trainer=gpu", "trainer.devices=[2]"], 2),
        (1, ["trainer=gpu", "trainer.devices=auto"], 0),
        (2, [], None),
        (2, ["trainer=ddp", "trainer.devices=auto"], None),
        (2, ["trainer=gpu", "trainer.num_nodes=2"], None),
        (2, ["trainer=gpu", "trainer.devices=many"], None),
        (1, ["trainer=fsdp"], None),
        (1, ["trainer=gpu", "data=files", "data.streaming=true"], None),
    ],
)
def test_only_the_one_gpu_that_trains_is_measured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    overrides: list[str],
    number: int | None,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    config = composed(["data.batch_tokens=auto", *overrides], tmp_path)
    if number is not None:
        assert resolve_device(config) == torch.device("cuda", number)
        return
    with pytest.raises(InputError, match="memory of one GPU with the whole text"):
        resolve_device(config)


def test_auto_is_no_number_until_it_is_measured(tmp_path: Path) -> None:
    config = composed(["data.batch_tokens=auto", "data.max_length=1500"], tmp_path)
    assert (config.data.batch_tokens, config.data.budget) == ("auto", 2048)
    measured = with_budget(config, 9216).data
    assert (measured.batch_tokens, measured.budget) == (9216, 9216)
    with pytest.raises(InputError, match=r"data\.batch_tokens='much' must be"):
        composed(["data.batch_tokens=much"], tmp_path)


@pytest.mark.thorough
def test_an_attempt_trains_on_the_largest_batch_of_the_plan(tmp_path: Path) -> None:
    settings = [*SMALL, *corpus_overrides(tmp_path), "tokenizer.sampling=0.3"]
    config = composed(settings, tmp_path / "cache")
    task: Any = make_task(config)
    task.data.prepare_data()
    positions: list[int] = []
    micro_loss = task.module.micro_loss

    def limited(batch: Any) -> Any:
        positions.append(batch.positions)
        if batch.positions > 3000:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return micro_loss(batch)

    task.module.micro_loss = limited
    for budget, fits in ((1024, True), (4096, False)):
        data = make_task(with_budget(config, budget)).data
        data.setup("fit")
        batch = data.largest_batch()
        assert can_train(task.module, batch, torch.device("cpu"), config) is fits
    small, large = positions
    assert 800 < small <= 2048
    assert 3 < large / small < 5
    assert all(parameter.grad is None for parameter in task.module.parameters())


@pytest.mark.thorough
def test_a_measured_run_is_the_run_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*SMALL, *corpus_overrides(tmp_path), "trainer.max_steps=1"]
    monkeypatch.setattr(auto_batch_size, "resolve_device", lambda config: torch.device("cpu"))
    monkeypatch.setattr(
        auto_batch_size, "largest_fitting", lambda fits, least: least if fits(least) else 0
    )
    weights = {}
    for budget in ("1024", "auto"):
        config = composed([*settings, f"data.batch_tokens={budget}"], tmp_path / "cache")
        _, task, _ = fit(config, tmp_path / budget)
        weights[budget] = task.module.state_dict()
    torch.testing.assert_close(weights["auto"], weights["1024"], rtol=0, atol=0)
    # A resumed run does not measure again.
    monkeypatch.delattr(auto_batch_size, "largest_fitting")
    resumed = [*settings, "data.batch_tokens=auto", f"checkpoint={tmp_path / 'auto'}"]
    _, task, _ = fit(composed(resumed, tmp_path / "cache"), tmp_path / "auto")
    assert task.config.data.batch_tokens == 1024
