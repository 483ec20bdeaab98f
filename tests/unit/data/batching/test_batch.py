"""Padding, the shift of the target, and the way of a batch to a device."""

import pytest
import torch
from lightning_fabric.utilities import move_data_to_device
from torch import Tensor

from tests.helpers.model.host_reads import HostReads
from transformer.data.batching.batch import collate, collate_tagged, pad_source
from transformer.data.batching.loader import Update

BATCH = collate([[5, 6], [7]], [[8], [9, 10, 11]])


def test_rows_labels_and_empty_sentences() -> None:
    assert BATCH.source.tolist() == [[5, 6, 3], [7, 3, 0]]
    assert BATCH.target_input.tolist() == [[2, 8, 0, 0], [2, 9, 10, 11]]
    assert BATCH.target_output.tolist() == [[8, 3, 0, 0], [9, 10, 11, 3]]
    assert (BATCH.size, BATCH.source_tokens, BATCH.target_tokens) == (2, 5, 6)
    assert (BATCH.tokens, BATCH.positions) == (11, 14)
    assert pad_source([[], [4]]).tolist() == [[3, 0], [4, 3]]
    assert pad_source([[]]).tolist() == [[3]]
    assert pad_source([]).shape[0] == 0
    assert BATCH.labels.tolist() == [8, 3, 9, 10, 11, 3]
    assert [half.labels.tolist() for half in BATCH.halves()] == [[8, 3], [9, 10, 11, 3]]
    tagged = collate_tagged([[5, 6], [7]], [[2, -1], [0]])
    assert tagged.labels.tolist() == [2, 0]
    assert [half.labels.tolist() for half in tagged.halves()] == [[2], [0]]


def test_lightning_moves_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies from pinned memory do not block."""
    monkeypatch.setattr(Tensor, "is_pinned", lambda tensor: True)
    with HostReads():
        moved = move_data_to_device(Update.of([BATCH], [0]), torch.device("meta")).batches[0]
    assert {moved.source.device.type, moved.target_output.device.type} == {"meta"}
