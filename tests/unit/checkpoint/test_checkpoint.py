"""The checkpoint: read as it was written, without running code; refused in one line otherwise."""

import errno
import io
import os
import pickle
import struct
import time
import zipfile
from collections.abc import Callable
from functools import partial
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
def test_a_model_that_does_not_translate_is_refused(file: Path, task: str) -> None:
    payload = read_payload(file)
    payload[PORTABLE]["config"]["task"] = task
    write_payload(payload, file)
    assert checkpoint_task(read_payload(file)) == task
    with pytest.raises(InputError, match=rf"best\.ckpt was trained for task={task}"):
        load_checkpoint(file)


def test_a_tied_table_is_stored_once(tmp_path: Path) -> None:
    sizes = {}
    for tie in ("none", "all"):
        model = tiny_transformer(tie_embeddings=tie, source_vocab_size=5000, target_vocab_size=5000)
        write_payload(payload_of(model), tmp_path / tie)
        sizes[tie] = (tmp_path / tie).stat().st_size
    table = 5000 * 16 * 4
    assert sizes["none"] - sizes["all"] == pytest.approx(2 * table, rel=0.02)


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


_NOTHING = object()


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change that sets a value at a path of keys, or deletes the key."""

    def change(payload: dict[str, Any]) -> None:
        node = payload
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value
        if value is _NOTHING:
            del node[path[-1]]

    return change


_drop = partial(_set, value=_NOTHING)


def _endless() -> list[Any]:
    node: list[Any] = ["chrf"]
    for _ in range(60):
        node = [node, node]
    return node


def _circle() -> dict[str, Any]:
    node: dict[str, Any] = {}
    node["self"] = node
    return node


def _relative(buckets: int) -> Callable[[dict[str, Any]], None]:
    def change(payload: dict[str, Any]) -> None:
        payload[PORTABLE]["config"]["model"] |= {
            **{"positions": "relative", "relative_buckets": buckets},
            "relative_max_distance": 2 * buckets,
        }

    return change


def _program(payload: dict[str, Any]) -> None:
    payload[PORTABLE]["config"]["decoding"] |= {
        "algorithm": "mbr",
        "beam_size": 1,
        "candidates": 4,
        "utility": "os:system",
    }


WIDE = torch.zeros(100)
CONFIG, MODEL = (PORTABLE, "config"), (PORTABLE, "config", "model")
WEIGHT = "model.projection.weight"
NAN = torch.full((24, 16), float("nan"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set(*CONFIG, "decoding", "utility", value=_endless()), "hold each other"),
        (_set("loops", value=_circle()), "hold each other"),
        (_set(*MODEL, "encoder_layers", value=10**8), "larger model than its weights"),
        (_set(*MODEL, "d_model", value="16"), r"model\.d_model='16' must be a whole number"),
        (_set(*MODEL, "d_model", value=2**20), "larger model than its weights"),
        (_relative(10**9), "larger model than its weights"),
        (_set("y", value=torch.zeros(99).as_strided((50, 50), (1, 1))), "larger than its bytes"),
        (_set("y", value=[WIDE[:99], WIDE[1:]]), "tensors overlap"),
        (_set(*MODEL, "unknown", value=1), "model.unknown is not a setting"),
        (_drop(*MODEL, "ffn_dim"), "larger model than its weights"),
        (_drop(*MODEL, "source_vocab_size"), "its model has no source_vocab_size"),
        (_set(*MODEL, "target_vocab_size", value=0), "its model has no target_vocab_size"),
        (_set(PORTABLE, "format", value=torch.zeros(2)), "has format .Tensor., this version reads"),
        (_set(PORTABLE, "format", value=FORMAT + 1), f"reads format {FORMAT}; install a newer"),
        (_set(PORTABLE, "format", value=FORMAT - 1), f"reads format {FORMAT}; train the model"),
        (_set(*MODEL, "feed_forward", value="nowhere:Wide"), "model.feed_forward=nowhere:Wide"),
        (_set(PORTABLE, "longest_source", value=0), "longest_source"),
        (_drop(PORTABLE, "longest_source"), "longest_source"),
        (_drop(PORTABLE, "tokenizer"), "it has no tokenizer"),
        (_set(*CONFIG, "trainer", value=3), "trainer=3 must be a mapping"),
        (_drop(*CONFIG, "data"), "its config has no data"),
        (_drop(*CONFIG), "it has no config"),
        (_set(*CONFIG, "task", value=[]), r"task=\[\] must be a text"),
        (_set(*CONFIG, "data", "${x}", value=1), r"data\.\$\{x\} is not a setting of data"),
        (_set(*CONFIG, "data", "x", value=float("nan")), r"data\.x in its config is no plain"),
        (_program, "utility=os:system is a program, which no checkpoint names"),
        (_set("state_dict", WEIGHT, value=NAN), "hold NaN or infinity"),
        (_set("optimizer_states", value=({"state": {0: {"exp_avg": NAN}}},)), "hold NaN"),
        (_set("state_dict", WEIGHT, value=3), "a weight is no tensor"),
        (_set("state_dict", WEIGHT, value=torch.eye(24).to_sparse()), "sparse|plain values"),
        (_set("state_dict", WEIGHT, value=torch.zeros(1).expand(24, 16)), "larger than its bytes"),
        (_set("x", value=torch.tensor(1j)), "complex64"),
        (_set("x", value={1.5: 2}), "neither a text nor a number"),
        (_set("x", value={3}), "plain values"),
        (_set("shards", value=7), "does not name a folder of parts"),
        (_set("shards", value={"folder": "../x.dcp"}), "does not name a folder of parts"),
    ],
)
def test_what_no_training_writes(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    payload = tiny_payload()
    change(payload)
    path = tmp_path / "x.ckpt"
    torch.save(payload, path)
    begun = time.monotonic()
    with pytest.raises(InputError, match=says) as caught:
        load_checkpoint(path)
    assert time.monotonic() - begun < 5
    assert str(path) in str(caught.value) or str(tmp_path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 500


def _records(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {record.filename: archive.read(record) for record in archive.infolist()}


def _compressed(path: Path) -> None:
    torch.save(tiny_payload(), path)
    records = _records(path) | {"archive/data/zeros": bytes(10**7)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in records.items():
            archive.writestr(name, content)


def _overlapping(path: Path) -> None:
    torch.save(tiny_payload(), path)
    content = bytearray(path.read_bytes())
    # The sizes of the last record in the central directory: more than the file has.
    index = content.rindex(b"PK\x01\x02")
    content[index + 20 : index + 28] = struct.pack("<II", 2**30, 2**30)
    path.write_bytes(content)


def _long_structure(path: Path) -> None:
    torch.save(tiny_payload(x=list(range(2**20))), path)


@pytest.mark.parametrize("write", [_compressed, _overlapping, _long_structure])
def test_an_archive_is_refused_before_it_is_unpacked(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "x.ckpt"
    write(path)
    with pytest.raises(InputError, match="cannot be read as a checkpoint: it is damaged, or holds"):
        read_payload(path)


@pytest.mark.parametrize(
    "pickled", [b"\x80\x02c__builtin__\nbytearray\n(J\x00\x00\x00\x70tR.", pickle.dumps(set())]
)
def test_a_pickle_that_makes_more_than_values_is_refused(tmp_path: Path, pickled: bytes) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x/data.pkl", pickled)
        archive.writestr("x/version", "3\n")
    path = tmp_path / "x.ckpt"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="damaged, or holds more than plain values"):
        read_payload(path)


@pytest.mark.parametrize("name", ["nowhere.ckpt", "."])
def test_no_file_at_all(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"cannot be read: (No such file|Is a directory)"):
        read_payload(tmp_path / name)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EIO, "Input/output error"), "cannot be read: Input/output error"),
        (PermissionError(errno.EACCES, "Permission denied"), "cannot be read: Permission denied"),
        (MemoryError(), "cannot be read: there is not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory"),
    ],
)
def test_an_unreadable_file_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    last = tmp_path / "checkpoints" / "last.ckpt"
    for step in (1, 2):
        write_payload(tiny_payload(global_step=step), last)
    whole = torch.load

    def fails(file: Any, **how: Any) -> Any:
        if Path(file).resolve() == last:
            raise error
        return whole(file, **how)

    monkeypatch.setattr("torch.load", fails)
    with pytest.raises(InputError, match=rf"last\.ckpt .*{says}"):
        find_last(tmp_path)


def test_a_damaged_last_file_gives_way_to_the_one_before(tmp_path: Path) -> None:
    last = tmp_path / "checkpoints" / "last.ckpt"
    before = last.with_name("previous.ckpt")
    for step in (1, 2):
        payload = tiny_payload(global_step=step)
        write_payload(payload, last)
    assert (find_last(tmp_path)[0], find_last(tmp_path)[1]["global_step"]) == (last, 2)
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
    with pytest.raises(InputError, match=r"previous\.ckpt cannot be read as a checkpoint"):
        find_last(tmp_path)
    last.write_bytes(b"")
    both = r"last\.ckpt cannot be read as a checkpoint.*previous\.ckpt cannot be read"
    with pytest.raises(InputError, match=both):
        find_last(tmp_path)
    best = last.with_name("best.ckpt")
    best.touch()
    with pytest.raises(InputError, match=both + f".*; resume with checkpoint={best} from the best"):
        find_last(tmp_path)


def test_a_run_resumes_from_its_best_checkpoint_only_if_it_is_named(tmp_path: Path) -> None:
    best = tmp_path / "checkpoints" / "best.ckpt"
    write_payload(tiny_payload(global_step=3), best)
    with pytest.raises(InputError, match=r"no last.ckpt or previous.ckpt; give .*/best\.ckpt$"):
        find_last(tmp_path)
    assert find_last(best)[1]["global_step"] == 3


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
