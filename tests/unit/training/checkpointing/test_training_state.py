"""Of a checkpoint, training takes over what training has written, and nothing else."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.model.models import tiny_payload, tiny_transformer
from transformer.checkpoint.checkpoint import write_payload
from transformer.common.errors import InputError
from transformer.settings.training import OptimizerConfig, ScheduleConfig
from transformer.training.checkpointing.training_state import (
    check_saved_state,
    find_resumable,
    optimizer_state,
    schedule_state,
)
from transformer.training.optimization.optimizer import build_optimizer
from transformer.training.optimization.schedule import build_schedule

ADAM = OptimizerConfig(lr=1e-3)
LOADER: dict[str, Any] = {
    **{"identity": {"pairs": 3, "seed": 1}, "row": None, "epoch_length": 4},
    **{"ranks": 1, "accumulation": 1, "first": 0, "since": 0},
}
POSITION = {"epoch": 0, "buffer": 0, "shard": 0, "shard_position": {"row": 0, "offsets": [0]}}
STREAM: dict[str, Any] = {
    **{"first": 0, "shards": "x", "seed": 1},
    "partitions": [{"pending": [{"position": POSITION, "used": 3}], "next": POSITION}],
}


def state(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "epoch": 0,
        "global_step": 7,
        "optimizer_states": [],
        "loops": {"fit_loop": {"state_dict": {"combined_loader": [LOADER]}}},
        "callbacks": {
            "BestCheckpoint": {"best": [1.5, 2.0]},
            "LastCheckpoint": {"validates": False},
            "Patience": {"best": None, "waited": 0},
            "Objective": {"metric": "val/bleu", "best": None},
            "MovingAverage": {"latest_update_step": 0},
        },
        "recovery": {"losses": [1.0], "in_a_row": 0, "skipped": 0, "returned": 0, "lr": 1e-3},
        "measured": {
            **{"loss": 1.0, "alignment": [0.0, 0.0], "consistency": None},
            **{"learned": 1, "counted": [1, 1]},
        },
    }
    return whole | changes


def loader(**changes: Any) -> dict[str, Any]:
    return {"fit_loop": {"state_dict": {"combined_loader": [LOADER | changes]}}}


@pytest.mark.parametrize("stream", [None, STREAM])
def test_what_training_writes_is_accepted(stream: dict[str, Any] | None) -> None:
    check_saved_state(state(loops=loader(row=stream)), Path("x.ckpt"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"global_step": -1}, "global_step=-1 must be at least 0"),
        ({"callbacks": 3}, "callbacks=3 must be a mapping"),
        ({"callbacks": {"LastCheckpoint": {"validates": 1}}}, "validates=1 must be true or false"),
        ({"recovery": state()["recovery"] | {"losses": ["x"]}}, r"recovery\.losses='x' must be a"),
        ({"measured": []}, r"measured=\[\] must be a mapping"),
        ({"loops": []}, "loops=.* must be a mapping"),
        ({"loops": loader(ranks=0)}, r"loops\.ranks=0 must be at least 1"),
        ({"loops": loader(first=None)}, r"loops\.first=null must be a whole number"),
    ],
)
def test_what_it_does_not_write_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=rf"^x\.ckpt: .*{says}"):
        check_saved_state(state(**changes), Path("x.ckpt"))


@pytest.mark.parametrize("group", ["", "recovery", "callbacks.BestCheckpoint"])
def test_every_missing_key_is_named(tmp_path: Path, group: str) -> None:
    def inside(payload: dict[str, Any]) -> dict[str, Any]:
        for name in group.split(".") if group else ():
            payload = payload[name]
        return payload

    required = ("global_step", "loops", "callbacks", "recovery", "measured")
    for key in inside(state()) if group else required:
        payload = tiny_payload(**deepcopy(state()))
        del inside(payload)[key]
        write_payload(payload, tmp_path / "x.ckpt")
        name = f"{group}.{key}" if group else key
        with pytest.raises(InputError, match=rf"x\.ckpt: {name} is missing"):
            find_resumable(tmp_path / "x.ckpt")


def trained() -> dict[str, Any]:
    model = tiny_transformer(encoder_layers=1, decoder_layers=1)
    optimizer = build_optimizer(ADAM, model.parameters())
    model(torch.tensor([[5, 3]]), torch.tensor([[2, 9]])).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def fresh() -> torch.optim.Optimizer:
    model = tiny_transformer(encoder_layers=1, decoder_layers=1)
    return build_optimizer(ADAM, model.parameters())


def test_moments_come_from_the_file_and_settings_from_the_run() -> None:
    saved = trained()
    saved["param_groups"][0] |= {"maximize": True, "lr": 100.0}
    found = optimizer_state([saved], fresh())
    assert found["state"].keys() == saved["state"].keys()
    assert not found["param_groups"][0]["maximize"]
    assert found["param_groups"][0]["lr"] == 1e-3


@pytest.mark.parametrize("damage", ["shape", "name", "number", "params", "none"])
def test_moments_of_other_weights_are_refused(damage: str) -> None:
    saved = trained()
    first = saved["state"][0]
    states: Any = [saved]
    match damage:
        case "shape":
            first["exp_avg"] = first["exp_avg"][:1]
        case "name":
            first["other"] = first.pop("exp_avg")
        case "number":
            saved["state"][999] = first
        case "params":
            saved["param_groups"][0]["params"] = [0]
        case "none":
            states = None
    with pytest.raises(InputError, match="do not fit the weights"):
        optimizer_state(states, fresh())


def test_the_schedule_is_as_after_its_updates() -> None:
    config = ScheduleConfig("cosine", warmup=3, total=20, floor=0.0)
    stepped = build_schedule(config, fresh(), 16)
    for _ in range(7):
        stepped.optimizer.step()
        stepped.step()
    made = schedule_state(build_schedule(config, fresh(), 16), 7, 1.0)
    assert made == stepped.state_dict()
