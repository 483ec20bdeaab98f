"""Which weights a run offers."""

from pathlib import Path

import pytest
import torch

from tests.helpers.steps import search_config
from tests.helpers.tuning_runs import write_run
from transformer.common.errors import InputError
from transformer.model.checkpoint.checkpoint import PORTABLE, read_payload, write_payload
from transformer.runs.tuning.candidate_weights import offered_weights, with_search

NAME = "model.projection.weight"


def test_a_run_without_a_moving_average(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    offers, lacking = offered_weights(run, ["single", "average", "ema"], 2)
    assert list(offers) == ["single", "average"]
    assert list(lacking) == ["ema"]
    files = [run / "checkpoints" / f"step-0000000{step}.ckpt" for step in (1, 2)]
    mean = torch.stack([read_payload(file)["state_dict"][NAME] for file in files]).mean(0)
    torch.testing.assert_close(offers["average"]["state_dict"][NAME], mean)
    best = read_payload(run / "checkpoints" / "best.ckpt")
    assert torch.equal(offers["single"]["state_dict"][NAME], best["state_dict"][NAME])
    for payload in offers.values():
        assert set(payload) == {"state_dict", PORTABLE}


def test_with_one_the_weights_beneath_it_are_the_single_ones(tmp_path: Path) -> None:
    run = write_run(tmp_path, ema=True, steps=1)
    offers, lacking = offered_weights(run, ["single", "average", "ema"], 5)
    best = read_payload(run / "checkpoints" / "best.ckpt")
    assert list(offers) == ["ema", "single"]
    assert list(lacking) == ["average"]
    assert torch.equal(offers["ema"]["state_dict"][NAME], best["state_dict"][NAME])
    assert torch.equal(offers["single"]["state_dict"][NAME], best["current_model_state"][NAME])


def test_what_the_run_translates_with_always_takes_part(tmp_path: Path) -> None:
    assert list(offered_weights(write_run(tmp_path), ["average"], 5)[0]) == ["single", "average"]


def test_tuned_weights_are_not_tuned_again(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    before = offered_weights(run, [], 5)[0]["single"]["state_dict"][NAME]
    (run / "checkpoints" / "last.ckpt").rename(run / "checkpoints" / "tuned.ckpt")
    assert torch.equal(offered_weights(run, [], 5)[0]["single"]["state_dict"][NAME], before)


def test_another_task_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    payload = read_payload(run / "checkpoints" / "best.ckpt")
    payload[PORTABLE]["config"]["task"] = "tagging"
    write_payload(payload, run / "checkpoints" / "best.ckpt")
    with pytest.raises(InputError, match="was trained for task=tagging and does not translate"):
        offered_weights(run, ["single"], 5)


def test_only_the_search_changes(tmp_path: Path) -> None:
    payload = read_payload(write_run(tmp_path) / "checkpoints" / "best.ckpt")
    changed = with_search(payload, search_config(beam_size=7))
    assert changed[PORTABLE]["config"]["decoding"]["beam_size"] == 7
    assert payload[PORTABLE]["config"]["decoding"]["beam_size"] == 2
    changed[PORTABLE]["config"]["decoding"] = payload[PORTABLE]["config"]["decoding"]
    assert changed == payload
