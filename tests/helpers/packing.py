"""What packed batches need in a test: models that allow them, and the kernel of a GPU."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.losses import loss_config
from tests.helpers.models import tiny_config
from transformer.common.errors import InputError
from transformer.model.attention import packed
from transformer.training.config import check_packing


def can_pack(**changes: Any) -> bool:
    """Whether a tiny model with these changes can learn from packed batches."""
    try:
        check_packing(tiny_config(**changes), loss_config())
    except InputError:
        return False
    return True


def plain_varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    longest_query: int,
    longest_key: int,
    *,
    window_size: tuple[int, int],
    enable_gqa: bool = False,
) -> Tensor:
    """``varlen_attn`` by its description, segment after segment, in any precision.

    It insists on what FlashAttention needs, and gives NaN where that leaves memory as it was.
    """
    assert {query_offsets.dtype, key_offsets.dtype} == {torch.int32}
    assert len(query_offsets) == len(key_offsets)
    assert query_offsets[-1] == len(query)
    assert key_offsets[-1] == len(key)
    assert window_size in ((-1, -1), (-1, 0))
    assert enable_gqa == (query.size(1) != key.size(1))
    group = query.size(1) // key.size(1)
    key, value = (heads.repeat_interleave(group, dim=1) for heads in (key, value))
    result = torch.full_like(query, torch.nan)
    bounds = [
        zip(o[:-1].tolist(), o[1:].tolist(), strict=True) for o in (query_offsets, key_offsets)
    ]
    for (first, last), (start, end) in zip(*bounds, strict=True):
        assert (last == first) == (end == start)
        assert last - first <= longest_query
        assert end - start <= longest_key
        # length head head_dim -> head length head_dim
        q, k, v = (x.transpose(0, 1) for x in (query[first:last], key[start:end], value[start:end]))
        scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
        if window_size == (-1, 0):
            scores = scores.masked_fill(
                torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf
            )
        result[first:last] = (scores.softmax(-1) @ v).transpose(0, 1)
    return result


def attend_as_on_gpu(monkeypatch: pytest.MonkeyPatch, *, plain: bool = False) -> None:
    """Let packed sentences take FlashAttention on any device; ``plain`` is the function above."""
    monkeypatch.setattr(packed, "runs_flash_attention", lambda device: True)
    if plain:
        monkeypatch.setattr(packed, "DTYPES", (torch.float32,))
        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", plain_varlen_attention)
