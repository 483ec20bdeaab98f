"""What the check of a run's resume compares, and what it says when something differs."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.model.models import tiny_payload
from tests.helpers.runs.processes import tiny_config
from transformer.common.errors import InputError
from transformer.model.checkpoint.checkpoint import write_payload
from transformer.runs import resume_check
from transformer.runs.resume_check import check_resume, differences
from transformer.training.config import run_config

WEIGHT = {"w": torch.arange(4.0)}


def leave(folder: Path, **changes: Any) -> None:
    """Write what a run would have left."""
    payload = tiny_payload(global_step=4, optimizer_states=[{"lr": 0.1}])
    weights = payload["state_dict"] | WEIGHT | changes.get("state_dict", {})
    payload |= {**changes, "state_dict": weights}
    write_payload(payload, folder / "checkpoints" / "last.ckpt")
    for name, text in (("batches", "1 a\n2 b\n"), ("metrics.csv", "step,val\n1,2\n")):
        (folder / name).write_text(changes.get(name, text))


def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str, **changes: Any
) -> tuple[str, list[tuple[str, int | None, str | None]]]:
    """Check two runs of which the broken one has left something else."""
    parts = []

    def run(part: Mapping[str, Any], folder: Path, until: int | None = None) -> None:
        assert part["trainer"]["max_steps"] == 4
        assert run_config(part).schedule.total != -1
        parts.append((folder.name, until, part["checkpoint"]))
        leave(folder, **(changes if folder.name == "broken" else {}))

    monkeypatch.setattr(resume_check, "_run", run)
    return check_resume(tiny_config(tmp_path, *overrides), tmp_path, 2), parts


def test_equal_runs_are_equal_and_are_checked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cosine over epochs ends with the check.
    epochs = ("schedule=cosine", "trainer.max_steps=-1", "trainer.max_epochs=3")
    said, parts = check(tmp_path, monkeypatch, *epochs)
    assert said == (
        "resume_check: 4 updates at once, and 2, a restart and 2 more are equal: batches, "
        "metrics, and bit for bit 6,788 weights and the optimiser"
    )
    broken = str(tmp_path / "broken")
    assert parts == [("at_once", None, None), ("broken", 2, None), ("broken", None, broken)]
    with pytest.raises(InputError, match="holds an earlier check; choose another"):
        check(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("what", "value", "where"),
    [
        (
            "state_dict",
            {"w": torch.tensor([0.0, 1.0, 2.0, 3.0000002])},
            "state_dict['w'] by 2.38e-07",
        ),
        ("optimizer_states", [{"lr": 0.2}], "optimizer_states[0]['lr'] by 0.1"),
        ("batches", "1 a\n2 c\n", "batches by inf"),
        ("metrics.csv", "step,val\n1,3\n", "metrics[0]['val'] by 1"),
        ("global_step", 3, "global_step by 1"),
    ],
)
def test_what_differs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, value: Any, where: str
) -> None:
    with pytest.raises(InputError, match="differ in 1 places, first ") as caught:
        check(tmp_path, monkeypatch, **{what: value})
    assert str(caught.value).endswith(where)


def test_another_device_may_add_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = {"w": torch.tensor([0.0, 1.0, 2.0, 3.0002])}
    said, _ = check(tmp_path, monkeypatch, "trainer.accelerator=gpu", state_dict=near)
    assert "to within 0.0002" in said
    for name in ("at_once", "broken"):
        shutil.rmtree(tmp_path / name)
    far = {"w": torch.tensor([0.0, 1.0, 2.0, 3.01])}
    with pytest.raises(InputError, match=r"first state_dict\['w'\] by 0\.01"):
        check(tmp_path, monkeypatch, "trainer.accelerator=gpu", state_dict=far)


@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_a_gpu_must_be_deterministic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accelerator: str
) -> None:
    warns: list[bool] = []

    def fit(*_: object) -> None:
        warns.append(torch.is_deterministic_algorithms_warn_only_enabled())
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation, but")

    monkeypatch.setattr(resume_check, "fit", fit)
    values = tiny_config(tmp_path, f"trainer.accelerator={accelerator}")
    try:
        with pytest.raises(InputError, match="cumsum_cuda_kernel is not deterministic"):
            resume_check._train(values, tmp_path, None)
    finally:
        torch.use_deterministic_algorithms(False)
    assert warns == [accelerator == "cpu"]


@pytest.mark.parametrize(
    ("override", "message"),
    [("checkpoint=run", "leave checkpoint out"), ("trainer.devices=2", r"set trainer\.devices=1")],
)
def test_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check(tmp_path, monkeypatch, override)
    with pytest.raises(InputError, match="resume_check=0 must be at least 1"):
        check_resume(tiny_config(tmp_path), tmp_path, 0)


def test_differences_are_found_wherever_they_are() -> None:
    one = {"a": [1, {"b": torch.zeros(2)}], "c": "x"}
    assert list(differences(one, one, "")) == []
    assert [where for where, _ in differences(one, {"a": one["a"]}, "root")] == ["root['c']"]
    other = {"a": [1, {"b": torch.zeros(3)}], "c": "y"}
    assert [where for where, _ in differences(one, other, "root")] == [
        "root['a'][1]['b']",
        "root['c']",
    ]
    assert list(differences([1], [1, 2], "root")) == [("root[1]", float("inf"))]


NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other", "size"),
    [
        (torch.tensor([NAN, 1.0]), torch.tensor([2.0, 1.0]), float("inf")),
        (torch.tensor([NAN, 1.0]), torch.tensor([NAN, 1.0]), None),
        (torch.tensor([NAN, 1.0]), torch.tensor([NAN, 3.0]), 2.0),
        (torch.tensor([1.0, float("inf")]), torch.tensor([2.0, float("inf")]), 1.0),
        (torch.tensor([1.0]), torch.tensor([1.0]).double(), float("inf")),
        (NAN, 1.0, float("inf")),
        ("nan", "1.5", float("inf")),
        (NAN, NAN, None),
    ],
)
def test_nan_is_equal_to_nan_alone(one: Any, other: Any, size: float | None) -> None:
    assert list(differences(one, other, "w")) == ([] if size is None else [("w", size)])
