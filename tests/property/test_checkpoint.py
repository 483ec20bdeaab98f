"""Whatever the bytes of a checkpoint: it is loaded whole, or refused in one line."""

import copy
import io
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.model.models import portable, tiny_transformer
from transformer.checkpoint.checkpoint import PORTABLE, load_checkpoint
from transformer.common.errors import InputError

MODEL = tiny_transformer(encoder_layers=1, decoder_layers=1)
PAYLOAD: dict[str, Any] = {
    "state_dict": {f"model.{name}": weight for name, weight in MODEL.state_dict().items()},
    PORTABLE: portable(MODEL.config, {"kind": "bytes"}, {"task": "translation"}),
}


def saved(payload: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    return buffer.getvalue()


BYTES = saved(PAYLOAD)


def loads(content: bytes) -> bool:
    """Whether a file of this content is loaded; else it is refused as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.ckpt")
        path.write_bytes(content)
        try:
            loaded = load_checkpoint(path)
        except InputError as error:
            assert len(str(error).splitlines()) == 1
            assert str(path) in str(error)
            return False
    assert loaded.model.config == MODEL.config
    weights = MODEL.state_dict()
    assert all(torch.equal(weights[name], one) for name, one in loaded.model.state_dict().items())
    return True


PARTS = st.floats(0, 1, exclude_max=True).map(lambda share: BYTES[: int(share * len(BYTES))])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.binary(max_size=50).map(b"PK\x03\x04".__add__) | PARTS)
def test_any_bytes_and_any_part_of_the_file_are_refused(content: bytes) -> None:
    assert not loads(content)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=6)), min_size=1))
def test_altered_bytes_are_refused_or_of_no_matter(changes: list[tuple[float, bytes]]) -> None:
    content = bytearray(BYTES)
    for share, new in changes:
        position = int(share * len(content))
        content[position : position + len(new)] = new
    loads(bytes(content))


def test_the_file_itself_is_loaded() -> None:
    assert loads(BYTES)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)
PLACES = [
    (PORTABLE,),
    ("state_dict",),
    *((PORTABLE, key) for key in PAYLOAD[PORTABLE]),
    (PORTABLE, "config", "task"),
    (PORTABLE, "config", "decoding"),
    *((PORTABLE, "config", "model", key) for key in PAYLOAD[PORTABLE]["config"]["model"]),
    *(("state_dict", key) for key in list(PAYLOAD["state_dict"])[:3]),
]


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(PLACES), VALUES, st.booleans())
def test_a_file_with_another_value_is_refused_or_the_same(
    position: tuple[str, ...], value: Any, remove: bool
) -> None:
    payload = copy.deepcopy(PAYLOAD)
    inner = payload
    for key in position[:-1]:
        inner = inner[key]
    if remove:
        inner.pop(position[-1], None)
    else:
        inner[position[-1]] = value
    loads_something(saved(payload))


def loads_something(content: bytes) -> None:
    """A file that says something else may be another model's; it never crashes the reader."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.ckpt")
        path.write_bytes(content)
        try:
            load_checkpoint(path)
        except InputError as error:
            assert len(str(error).splitlines()) == 1
