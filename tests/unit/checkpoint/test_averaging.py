"""The mean of the weights of a run's newest checkpoints."""

from pathlib import Path

import pytest
import torch

from tests.helpers.model.models import portable, run_of, tiny_transformer
from transformer.checkpoint.averaging import average_checkpoints, recent_checkpoints
from transformer.checkpoint.checkpoint import (
    PORTABLE,
    WEIGHTS_PREFIX,
    load_checkpoint,
    portable_part,
    read_payload,
    write_payload,
)
from transformer.common.errors import InputError


def write(path: Path, value: float, **changes: str | float) -> Path:
    """A checkpoint all of whose weights have one value."""
    model = tiny_transformer(**changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    payload = {
        "state_dict": {f"{WEIGHTS_PREFIX}{k}": v for k, v in model.state_dict().items()},
        "optimizer_states": [torch.ones(3)],
        PORTABLE: portable(model.config, {"bytes": [1]}, {"seed": 7}),
    }
    write_payload(payload, path)
    return path


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([-1.0, 0.5, 2.0, 4.5], 1.5),
        # Next to 2**24 float32 does not hold 1: one after the other the ones would be lost.
        ([2.0**24, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0], 2.0**21 + 1),
    ],
)
def test_the_mean(tmp_path: Path, values: list[float], mean: float) -> None:
    paths = [write(tmp_path / f"{i}.ckpt", value) for i, value in enumerate(values)]
    averaged = average_checkpoints(paths)
    for tensor in averaged["state_dict"].values():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, torch.full_like(tensor, mean))


@pytest.mark.parametrize("tie_embeddings", ["decoder", "all"])
def test_it_is_a_checkpoint_of_its_own(tmp_path: Path, tie_embeddings: str) -> None:
    paths = [write(tmp_path / f"{i}.ckpt", i, tie_embeddings=tie_embeddings) for i in (1, 2)]
    averaged = tmp_path / "average.ckpt"
    write_payload(average_checkpoints(paths), averaged)
    loaded = load_checkpoint(averaged)
    assert loaded.model.encoder.layers[0].attention.query.weight.unique().item() == 1.5
    assert loaded.config == run_of(loaded.model.config, seed=7)
    payload = read_payload(averaged)
    assert set(payload) == {"state_dict", PORTABLE}
    stored = {tensor.data_ptr() for tensor in payload["state_dict"].values()}
    before = {tensor.data_ptr() for tensor in read_payload(paths[0])["state_dict"].values()}
    assert len(stored) == len(before)
    tables = len(payload["state_dict"]) - len(stored)
    assert tables == {"decoder": 1, "all": 2}[tie_embeddings]


def test_another_model_is_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.ckpt", 1.0), write(tmp_path / "b.ckpt", 1.0, num_heads=2)]
    with pytest.raises(InputError, match=r"b\.ckpt has another model than .*a\.ckpt"):
        average_checkpoints(paths)
    payload = read_payload(paths[0])
    payload[PORTABLE]["config"]["task"] = "tagging"
    write_payload(payload, paths[0])
    with pytest.raises(InputError, match="was trained for task=tagging"):
        average_checkpoints(paths[:1])


def test_a_run_that_went_on_with_other_settings_has_the_newest(tmp_path: Path) -> None:
    before, now = {"dropout": 0.1, "max_length": 32}, {"dropout": 0.3, "max_length": 64}
    paths = [write(tmp_path / "a.ckpt", 1.0, **before), write(tmp_path / "b.ckpt", 2.0, **now)]
    averaged = average_checkpoints(paths)
    model = portable_part(averaged).config.model
    assert (model.dropout, model.max_length) == (0.3, 64)
    assert all(torch.all(weight == 1.5) for weight in averaged["state_dict"].values())


def test_the_newest_are_found_oldest_first(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for name in ("step-00000900", "step-00010000", "step-00000100", "best", "last", "average"):
        (folder / f"{name}.ckpt").touch()
    assert [path.stem for path in recent_checkpoints(tmp_path, 2)] == [
        "step-00000900",
        "step-00010000",
    ]
    assert len(recent_checkpoints(tmp_path, 3)) == len(recent_checkpoints(tmp_path, None)) == 3
    for count in (4, 0):
        with pytest.raises(InputError, match=f"last={count} must be at least 1 and at most 3"):
            recent_checkpoints(tmp_path, count)
