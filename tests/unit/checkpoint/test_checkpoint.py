"""The checkpoint: read as it was written, without running code; refused in one line otherwise."""

import errno
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.model.models import portable, run_of, tiny_payload, tiny_transformer
from transformer.checkpoint.checkpoint import (
    FORMAT,
    PORTABLE,
    WEIGHTS_PREFIX,
    checkpoint_task,
    find_last,
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


@pytest.mark.parametrize(
    ("tie_embeddings", "positions"),
    [("none", "learned"), ("decoder", "learned"), ("all", "sinusoidal")],
)
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


def test_a_model_that_does_not_translate_is_refused(file: Path) -> None:
    payload = read_payload(file)
    payload[PORTABLE]["config"]["task"] = "tagging"
    write_payload(payload, file)
    assert checkpoint_task(read_payload(file)) == "tagging"
    with pytest.raises(InputError, match=r"best\.ckpt was trained for task=tagging"):
        load_checkpoint(file)


def test_weights_of_another_shape_are_refused(file: Path) -> None:
    payload = read_payload(file)
    payload[PORTABLE]["config"]["model"]["ffn_dim"] += 1
    write_payload(payload, file)
    with pytest.raises(InputError, match=r"do not fit its model: .*size mismatch") as caught:
        load_checkpoint(file)
    assert "\n" not in str(caught.value)


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
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)  # torch colors its messages
    assert not sign.exists()
    if where != "plain pickle":
        torch.load(path, weights_only=False)
        assert sign.exists()  # the trap was set


def test_a_torch_file_of_others(tmp_path: Path) -> None:
    path = tmp_path / "foreign.pt"
    for foreign in (
        {"encoder.weight": torch.zeros(2)},
        [torch.zeros(2)],
        {PORTABLE: {"format": FORMAT}},
        {PORTABLE: torch.zeros(2), "state_dict": {}},
    ):
        torch.save(foreign, path)
        with pytest.raises(InputError, match="is not a checkpoint of this framework"):
            read_payload(path)


MISSING = object()
WIDE = torch.zeros(100)
CONFIG = (PORTABLE, "config")
MODEL = (PORTABLE, "config", "model")
WEIGHT = ("state_dict", "model.projection.weight")
MOMENTS = ({"state": {0: {"exp_avg": torch.full((24, 16), float("nan"))}}},)
PROGRAM = {"algorithm": "mbr", "beam_size": 1, "candidates": 4, "utility": "os:system"}
CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("loops",), CIRCLE, "hold each other"),
        ((*MODEL, "encoder_layers"), 10**8, "larger model than its weights"),
        ((*MODEL, "d_model"), 2**20, "larger model than its weights"),
        (("y",), torch.zeros(99).as_strided((50, 50), (1, 1)), "larger than its bytes"),
        (("y",), [WIDE[:99], WIDE[1:]], "tensors overlap"),
        ((*MODEL, "unknown"), 1, "model.unknown is not a setting"),
        ((*MODEL, "target_vocab_size"), 0, "its model has no target_vocab_size"),
        ((*MODEL, "feed_forward"), "nowhere:Wide", "model.feed_forward=nowhere:Wide"),
        ((PORTABLE, "format"), FORMAT + 1, f"reads format {FORMAT}; install a newer"),
        ((PORTABLE, "format"), FORMAT - 1, f"reads format {FORMAT}; train the model"),
        ((PORTABLE, "longest_source"), 0, "longest_source"),
        ((PORTABLE, "tokenizer"), MISSING, "it has no tokenizer"),
        ((*CONFIG, "data"), MISSING, "its config has no data"),
        (CONFIG, MISSING, "it has no config"),
        ((*CONFIG, "data", "x"), float("nan"), r"data\.x in its config is no plain"),
        ((*CONFIG, "decoding"), PROGRAM, "os:system is a program, which no checkpoint names"),
        (("optimizer_states",), MOMENTS, "hold NaN"),
        (WEIGHT, 3, "a weight is no tensor"),
        (("x",), torch.tensor(1j), "complex64"),
        (("x",), {1.5: 2}, "neither a text nor a number"),
        (("x",), {3}, "plain values"),
        (("shards",), 7, "does not name a folder of parts"),
    ],
)
def test_what_no_training_writes(
    tmp_path: Path, path: tuple[str, ...], value: object, reason: str
) -> None:
    payload = tiny_payload()
    node = payload
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    if value is MISSING:
        del node[path[-1]]
    torch.save(payload, tmp_path / "x.ckpt")
    with pytest.raises(InputError, match=reason) as caught:
        load_checkpoint(tmp_path / "x.ckpt")
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    compressed = tmp_path / "compressed.ckpt"
    torch.save(tiny_payload(), compressed)
    with zipfile.ZipFile(compressed) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    with zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (records | {"archive/data/zeros": bytes(10**7)}).items():
            archive.writestr(name, content)
    long = tmp_path / "long.ckpt"
    torch.save(tiny_payload(x=list(range(2**20))), long)
    for path in (compressed, long):
        with pytest.raises(InputError, match="cannot be read as a checkpoint: it is damaged"):
            read_payload(path)


def test_an_unreadable_file_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = tmp_path / "checkpoints" / "last.ckpt"
    for step in (1, 2):
        write_payload(tiny_payload(global_step=step), last)
    whole = torch.load
    for error, reason in (
        (OSError(errno.EIO, "Input/output error"), "cannot be read: Input/output error"),
        (MemoryError(), "cannot be read: there is not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory"),
    ):

        def fails(file: Any, error: Exception = error, **settings: Any) -> Any:
            if Path(file).resolve() == last:
                raise error
            return whole(file, **settings)

        monkeypatch.setattr("torch.load", fails)
        with pytest.raises(InputError, match=rf"last\.ckpt .*{reason}"):
            find_last(tmp_path)


def test_a_damaged_last_file_gives_way_to_the_one_before(tmp_path: Path) -> None:
    last = tmp_path / "checkpoints" / "last.ckpt"
    before = last.with_name("previous.ckpt")
    for step in (1, 2):
        payload = tiny_payload(global_step=step)
        write_payload(payload, last)
    assert find_last(tmp_path)[0] == last
    whole = last.read_bytes()
    weight = payload["state_dict"]["model.projection.weight"].numpy().tobytes()
    last.write_bytes(whole.replace(weight, bytes([weight[0] ^ 1]) + weight[1:]))
    assert find_last(tmp_path)[0] == before
    # Settings are read without the weights.
    assert find_last(tmp_path, tensors=False)[0] == last
    last.write_bytes(whole[:-50])
    assert (find_last(tmp_path)[0], find_last(tmp_path)[1]["global_step"]) == (before, 1)
    # A file that is named is meant.
    with pytest.raises(InputError, match=r"last\.ckpt cannot be read as a checkpoint"):
        find_last(last)
    last.unlink()  # between its two renamings a process was killed
    assert find_last(tmp_path)[0] == before
    before.write_bytes(b"")
    last.write_bytes(b"")
    best = last.with_name("best.ckpt")
    best.touch()
    both = r"last\.ckpt cannot be read as a checkpoint.*previous\.ckpt cannot be read"
    with pytest.raises(InputError, match=both + f".*; resume with checkpoint={best} from the best"):
        find_last(tmp_path)


def test_a_model_translates_without_the_package_of_its_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise RuntimeError("Please install the following: mecab")

    payload = tiny_payload()
    payload[PORTABLE]["config"]["metrics"]["tokenize"] = "ja-mecab"
    torch.save(payload, tmp_path / "last.ckpt")
    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", lambda name: missing)
    checkpoint = load_checkpoint(tmp_path / "last.ckpt")
    with pytest.raises(InputError, match="tokenize=ja-mecab cannot be used"):
        checkpoint.config.metrics.bleu()
