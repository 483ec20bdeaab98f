"""Packed batches hold the sentences of padded ones, and offsets that a kernel can rely on."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.common.segments import Segments
from transformer.data.batching.batch import Batch, collate
from transformer.data.batching.packed_batch import MIN_PADDING, PackedBatch, pack

SENTENCES = st.lists(st.integers(4, 20), max_size=12)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=9)
FIELDS = ("source", "target_input", "target_output", "labelled")


def equal(first: Batch, second: Batch) -> bool:
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in FIELDS)


def assert_laid_out(segments: Segments, tokens: torch.Tensor) -> None:
    """Every token is in a segment, and at its place in the padded layout."""
    lengths, count = segments.offsets.diff(), segments.mask.sum(1)
    assert segments.offsets.dtype == torch.int32
    assert segments.offsets[-1] == tokens.numel()
    assert lengths.max() == segments.longest
    assert lengths[: len(count)].tolist() == count.tolist()
    assert len(lengths).bit_count() == 1
    real = int(count.sum())
    assert torch.equal(segments.padded.flatten()[segments.cells[:real]], torch.arange(real))
    expected = [position for length in count.tolist() for position in range(length)]
    assert segments.positions.flatten().tolist() == expected + [0] * (tokens.numel() - real)


@settings(deadline=None, max_examples=60)
@given(PAIRS, st.integers(0, 200))
def test_pairs_come_back_from_a_packed_batch(
    pairs: list[tuple[list[int], list[int]]], more: int
) -> None:
    padded = collate(*map(list, zip(*pairs, strict=True)))
    least = pack(padded).source.shape[1]
    packed = pack(padded, least + more)
    assert packed.source.shape == packed.target_output.shape == (1, least + more)
    assert least == max(padded.source_tokens, padded.target_tokens) + MIN_PADDING
    assert equal(packed.unpacked(), padded)
    assert (packed.size, packed.tokens) == (padded.size, padded.tokens)
    assert packed.labels.tolist() == padded.labels.tolist()
    assert packed.packing is not None
    source, target = packed.packing.source, packed.packing.target
    assert_laid_out(source, packed.source)
    assert_laid_out(target, packed.target_output)
    # A query has keys, and keys have queries.
    assert torch.equal(source.offsets.diff() == 0, target.offsets.diff() == 0)
    if len(pairs) > 1:
        for mine, expected in zip(packed.halves(), padded.halves(), strict=True):
            assert isinstance(mine, PackedBatch)
            assert equal(mine.unpacked(), expected)
            assert mine.positions <= packed.positions


def test_what_does_not_fit_and_how_padding_is_cut() -> None:
    padded = collate([[5, 6]], [[7]])
    with pytest.raises(ValueError, match="3 tokens and padding do not fit 18 positions"):
        pack(padded, 3 + MIN_PADDING - 1)
    linked = collate([[5]], [[7]], [torch.ones(1, 1, dtype=torch.bool).numpy()])
    with pytest.raises(ValueError, match="no word links"):
        pack(linked)
    short = collate([[5] * 9] * 40, [[6]] * 40)
    packed = pack(short, 416).packing
    assert packed is not None
    assert packed.source.longest == 10
    # 336 positions in 16 segments.
    assert packed.target.longest == 21
