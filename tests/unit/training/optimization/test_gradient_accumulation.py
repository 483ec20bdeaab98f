"""Ranks that share out the weights cannot repeat a part of an update alone."""

import pytest
import torch
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch, collate
from transformer.data.batching.loader import Update
from transformer.training.optimization.gradient_accumulation import Accumulator


def test_sharded_ranks_halve_no_batch() -> None:
    tried = []

    def backward(batch: Batch, path: tuple[int, ...]) -> tuple[int, dict[str, Tensor]]:
        tried.append(batch.size)
        raise torch.OutOfMemoryError("a double's")

    accumulate = Accumulator(backward, lambda: None)
    accumulate.alone = False
    batch = collate([[4, 5], [6]], [[7], [8, 9]])
    with pytest.raises(InputError, match=r"cannot halve a batch; set data\.batch_tokens lower"):
        accumulate(Update.of([batch], [0]))
    assert tried == [2]
