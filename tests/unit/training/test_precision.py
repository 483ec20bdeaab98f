"""The precision of a run by its device; bfloat16 only in the matrix products."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.helpers.runs.ranks import curve
from tests.helpers.runs.runs import SMALL, composed, corpus_overrides
from transformer.common.processor import PROCESSORS
from transformer.model.attention.kernels.fused import attend_fused
from transformer.model.layers.norm import HeadNorm
from transformer.runs.train import train
from transformer.settings.training import TrainerConfig
from transformer.training.precision import resolve_precision, search_autocast


@pytest.mark.parametrize(
    ("precision", "accelerator", "has_bfloat16", "resolved", "products"),
    [
        ("auto", "gpu", True, "bf16-mixed", "high"),
        ("auto", "gpu", False, "32-true", "high"),
        ("auto", "cpu", True, "bf16-mixed", "highest"),
        ("auto", "cpu", False, "32-true", "highest"),
        ("auto", "auto", True, "bf16-mixed", "highest"),
        ("auto", "mps", True, "32-true", "highest"),
        ("32-true", "gpu", True, "32-true", "highest"),
    ],
)
def test_auto_is_the_fastest_of_the_device(
    *,
    precision: str,
    accelerator: str,
    has_bfloat16: bool | None,
    resolved: str,
    products: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: accelerator == "gpu")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    row = replace(PROCESSORS["other"], bfloat16=has_bfloat16)
    monkeypatch.setattr("transformer.training.precision.processor", lambda: row)
    try:
        given = TrainerConfig(precision=precision, accelerator=accelerator)
        assert resolve_precision(given) == replace(given, precision=resolved)
        assert torch.get_float32_matmul_precision() == products
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_search_on_a_gpu_is_as_precise_as_training(
    precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a GPU torch would refuse it.
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    with search_autocast(precision, torch.device(device)):
        narrow = torch.is_autocast_enabled(device)
    assert narrow == ((precision, device) == ("bf16-mixed", "cuda"))


@pytest.mark.thorough
def test_bfloat16_learns_nearly_alike_and_keeps_exact_weights(tmp_path: Path) -> None:
    overrides = [*corpus_overrides(tmp_path), *SMALL, "trainer.max_steps=8", "report=none"]
    overrides += ["trainer.log_every_n_steps=1", "trainer.val_check_interval=8", "decoding=greedy"]
    overrides += ["trainer.accumulate_grad_batches=2", "keep_memory=false", "data.batch_tokens=256"]
    overrides += ["callbacks.samples=0", "test=false"]
    curves = {}
    for precision in ("32-true", "bf16-mixed"):
        config = composed([*overrides, f"precision={precision}"], tmp_path)
        train(config, tmp_path / precision)
        curves[precision] = curve(tmp_path / precision)
    exact, mixed = curves.values()
    losses = [point for point in exact if point[0] == "train/loss"]
    assert len(losses) == 8
    # It is not the same run: a product in bfloat16 has three digits.
    assert any(exact[point] != mixed[point] for point in losses)
    assert all(abs(exact[point] - mixed[point]) < 0.02 for point in losses)
    falls = [values[losses[0]] - values[losses[-1]] for values in (exact, mixed)]
    assert falls[1] == pytest.approx(falls[0], rel=0.05)
    file = tmp_path / "bf16-mixed" / "checkpoints" / "last.ckpt"
    payload = torch.load(file, weights_only=True)
    moments = payload["optimizer_states"][0]["state"].values()
    for tensor in (
        *payload["state_dict"].values(),
        *(v for each in moments for v in each.values()),
    ):
        assert tensor.dtype in (torch.float32, torch.bool, torch.int64)
    weights = payload["state_dict"]["model.projection.weight"]
    assert not torch.equal(weights, weights.bfloat16().float())


@pytest.mark.parametrize("autocast", [True, False])
def test_attention_on_a_cpu_is_computed_in_float32(autocast: bool) -> None:
    heads = [torch.randn(2, 3, 5, 4).bfloat16().requires_grad_() for _ in range(3)]
    mask = torch.rand(2, 1, 1, 5) < 0.7
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        attended = attend_fused(*heads, mask)
    attended.sum().backward()
    precise = [head.detach().float().requires_grad_() for head in heads]
    expected = attend_fused(*precise, mask)
    expected.sum().backward()
    assert torch.equal(attended, expected.bfloat16())
    for head, exact in zip(heads, precise, strict=True):
        assert head.grad is not None and exact.grad is not None
        assert torch.equal(head.grad, exact.grad.bfloat16())


def test_heads_stay_narrow_on_a_gpu(unchecked: None) -> None:
    """Without a GPU `torch.autocast` would be off for one."""
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        with FakeTensorMode(), torch.device("cuda"), torch.no_grad():
            heads = torch.empty(2, 3, 5, 4, dtype=torch.bfloat16)
            assert HeadNorm(4)(heads).dtype == torch.bfloat16
    finally:
        torch.set_autocast_enabled("cuda", before)
