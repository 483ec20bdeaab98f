"""One file that needs no other: written whole, read without running any of it."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.model.models import portable, run_of, tiny_transformer
from transformer.checkpoint.checkpoint import (
    FORMAT,
    PORTABLE,
    WEIGHTS_PREFIX,
    checkpoint_task,
    load_checkpoint,
    read_payload,
    write_payload,
)
from transformer.common.errors import InputError
from transformer.model.transformer import Transformer

TOKENIZER = {"kind": "joint", "bytes": [0, 255, 10]}
RUN = {"seed": 7, "optimizer": {"lr": 2e-3}, "data": {"train": ["a.en", "a.de"]}}


def payload_of(model: Transformer) -> dict[str, Any]:
    weights = {f"{WEIGHTS_PREFIX}{k}": v for k, v in model.state_dict().items()}
    part = portable(model.config, TOKENIZER, RUN)
    return {"state_dict": weights, "global_step": 7, PORTABLE: part}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "checkpoints" / "best.ckpt"
    write_payload(payload_of(tiny_transformer()), path)
    return path


@pytest.mark.parametrize("tie_embeddings", ["none", "decoder", "all"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_round_trip(tmp_path: Path, tie_embeddings: str, positions: str) -> None:
    model = tiny_transformer(tie_embeddings=tie_embeddings, positions=positions)
    path = tmp_path / "x.ckpt"
    write_payload(payload_of(model), path)
    loaded = load_checkpoint(path)
    assert loaded.model.config == model.config
    assert loaded.config == run_of(model.config, **RUN)
    assert (loaded.portable.tokenizer, loaded.path) == (TOKENIZER, path)
    assert not loaded.model.training
    weights = model.state_dict()
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(tensor, weights.pop(name))
    assert not weights
    tied = loaded.model.target_embedding.tokens.lookup.weight is loaded.model.projection.weight
    assert tied == (tie_embeddings != "none")
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 9]])
    assert torch.equal(
        loaded.model.logits(loaded.model(source, target)), model.logits(model(source, target))
    )


@pytest.mark.parametrize("task", ["tagging", "language_modeling"])
def test_what_does_not_translate_is_refused(tmp_path: Path, task: str) -> None:
    payload = payload_of(tiny_transformer())
    payload[PORTABLE]["config"]["task"] = task
    write_payload(payload, tmp_path / "x.ckpt")
    assert checkpoint_task(read_payload(tmp_path / "x.ckpt")) == task
    with pytest.raises(InputError, match=f"x.ckpt was trained for task={task}, not text to text"):
        load_checkpoint(tmp_path / "x.ckpt")


def test_an_error_of_its_model_names_the_file(tmp_path: Path) -> None:
    payload = payload_of(tiny_transformer())
    payload[PORTABLE]["config"]["model"]["feed_forward"] = "nowhere:Wide"
    write_payload(payload, tmp_path / "x.ckpt")
    with pytest.raises(InputError, match=r"x\.ckpt: model\.feed_forward=nowhere:Wide"):
        load_checkpoint(tmp_path / "x.ckpt")


def test_a_tied_table_is_stored_once(tmp_path: Path) -> None:
    sizes = {}
    for tie in ("none", "all"):
        model = tiny_transformer(tie_embeddings=tie, source_vocab_size=5000, target_vocab_size=5000)
        write_payload(payload_of(model), tmp_path / tie)
        sizes[tie] = (tmp_path / tie).stat().st_size
    table = 5000 * 16 * 4
    assert sizes["none"] - sizes["all"] == pytest.approx(2 * table, rel=0.02)


def test_the_file_can_be_moved_without_the_rest_of_its_run(file: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "mein modell.bin"
    moved.parent.mkdir()
    file.rename(moved)
    file.parent.rmdir()
    assert load_checkpoint(str(moved)).config.data.train == ("a.en", "a.de")


class RunsCode:
    """Touches a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("where", ["top", "inside", "plain pickle"])
def test_code_in_a_file_does_not_run(tmp_path: Path, where: str) -> None:
    path, sign = tmp_path / "evil.ckpt", tmp_path / "it ran"
    code = RunsCode(sign)
    if where == "plain pickle":
        path.write_bytes(pickle.dumps(code))
    else:
        payload = payload_of(tiny_transformer())
        torch.save(code if where == "top" else payload | {"code": code}, path)
    with pytest.raises(InputError, match="holds more than plain values and tensors") as caught:
        load_checkpoint(path)
    assert_one_line(caught.value, path)
    assert not sign.exists()
    torch.load(path, weights_only=False) if where != "plain pickle" else pickle.loads(
        path.read_bytes()
    )
    assert sign.exists()  # the trap was set


def assert_one_line(error: InputError, path: Path) -> None:
    message = str(error)
    assert "\n" not in message
    assert "\x1b" not in message  # torch colors its messages
    assert str(path) in message
    assert len(message.replace(str(path), "")) < 200


@pytest.mark.parametrize(
    "foreign",
    [
        {"encoder.weight": torch.zeros(2)},
        [torch.zeros(2)],
        torch.zeros(2),
        {"state_dict": {}},
        {PORTABLE: {"format": FORMAT}},
        {PORTABLE: torch.zeros(2), "state_dict": {}},
        {PORTABLE: {"h.0": torch.zeros(2)}, "state_dict": {}},
    ],
)
def test_a_torch_file_of_others(tmp_path: Path, foreign: Any) -> None:
    path = tmp_path / "foreign.pt"
    torch.save(foreign, path)
    with pytest.raises(InputError, match="is not a checkpoint of this framework") as caught:
        read_payload(path)
    assert_one_line(caught.value, path)


@pytest.mark.parametrize(("other", "advice"), [(1, "install a newer version"), (-1, "train the")])
def test_another_format_is_refused(file: Path, other: int, advice: str) -> None:
    payload = read_payload(file)
    payload[PORTABLE]["format"] += other
    write_payload(payload, file)
    with pytest.raises(InputError, match=rf"reads format {FORMAT}; {advice}") as caught:
        load_checkpoint(file)
    assert_one_line(caught.value, file)


def test_weights_of_another_shape_are_refused(file: Path) -> None:
    payload = read_payload(file)
    payload[PORTABLE]["config"]["model"]["ffn_dim"] += 1
    write_payload(payload, file)
    with pytest.raises(InputError, match=r"do not fit its model: .*size mismatch") as caught:
        load_checkpoint(file)
    assert "\n" not in str(caught.value)
