"""The number of ranks is that of torchrun or SLURM; contradictions are refused."""

from dataclasses import replace
from typing import Any

import pytest

from transformer.common.errors import InputError
from transformer.settings.training import TrainerConfig
from transformer.training.distributed.ddp import resolve_devices
from transformer.training.distributed.launcher import count_devices
from transformer.training.distributed.ranks import external_rank

CONFIG = TrainerConfig(devices=-1, accelerator="gpu")
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "3",
    "WORLD_SIZE": "6",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "2",
    "MASTER_ADDR": "first",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NODELIST": "n[01-02]",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_ID": "20001",
    "SLURM_JOBID": "20001",
}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in {*TORCHRUN, *SLURM}:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def started_by(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_torchrun_says_how_many(alone: pytest.MonkeyPatch) -> None:
    assert external_rank() is None
    assert resolve_devices(CONFIG) == CONFIG
    started_by(TORCHRUN, alone)
    assert resolve_devices(CONFIG) == replace(CONFIG, devices=2, num_nodes=3)
    index = external_rank()
    assert index is not None
    assert (index.rank, index.ranks, index.address, index.port) == (5, 6, "first", 29500)
    alone.setattr("lightning_fabric.accelerators.cuda.num_cuda_devices", lambda: 4)
    assert resolve_devices(replace(CONFIG, devices=[1, 3])).devices == (1, 3)


def test_slurm_says_where(alone: pytest.MonkeyPatch) -> None:
    started_by(SLURM, alone)
    index = external_rank()
    assert index is not None
    assert (index.rank, index.ranks, index.address) == (3, 4, "n01")
    alone.delenv("SLURM_NTASKS_PER_NODE")
    with pytest.raises(InputError, match="--ntasks-per-node"):
        external_rank()


def test_what_contradicts_is_refused(alone: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"trainer\.num_nodes=2"):
        resolve_devices(replace(CONFIG, num_nodes=2))
    started_by(TORCHRUN, alone)
    with pytest.raises(InputError, match=r"trainer\.devices=2"):
        resolve_devices(replace(CONFIG, devices=1))
    with pytest.raises(InputError, match=r"3 machines.*trainer\.num_nodes"):
        resolve_devices(replace(CONFIG, num_nodes=2))


def test_a_process_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning_fabric.accelerators.cuda.num_cuda_devices", lambda: 4)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    devices: Any
    for accelerator, devices, count in (
        ("cpu", "2", 2),
        ("cpu", "auto", 1),
        ("auto", -1, 4),
        ("gpu", "0,1,3", 3),
        ("gpu", 5, 1),
        ("gpu", [], 1),
    ):
        assert count_devices(TrainerConfig(accelerator=accelerator, devices=devices)) == count
