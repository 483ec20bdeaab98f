"""A checkpoint that no training wrote is refused in one line, before anything is made of it."""

import io
import pickle
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.model.models import tiny_payload
from transformer.checkpoint.checkpoint import PORTABLE, load_checkpoint, read_payload
from transformer.common.errors import InputError


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(payload: dict[str, Any]) -> None:
        node = payload
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return change


def _drop(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(payload: dict[str, Any]) -> None:
        node = payload
        for key in path[:-1]:
            node = node[key]
        del node[path[-1]]

    return change


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
