"""Stretches that are not aligned show in lengths alone; chance does not look like one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Int

from transformer.quality.checks.misalignment import find_stretches


def text(
    lines: int, seed: int, noise: float = 0.3
) -> tuple[Int[np.ndarray, " line"], Int[np.ndarray, " line"]]:
    """Lengths of sources, log-normal, and of targets that follow them."""
    random = np.random.default_rng(seed)
    logs = random.normal(4, 0.5, lines)
    return np.exp(logs).astype(int), np.exp(logs + random.normal(0.1, noise, lines)).astype(int)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2000), st.floats(0.05, 0.4))
def test_aligned_text_has_no_stretch(seed: int, lines: int, noise: float) -> None:
    assert find_stretches(*text(lines, seed, noise)) == []


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([-5, -3, -2, -1, 1, 2, 4, 5]), st.integers(100, 600))
def test_a_shifted_stretch_is_found_with_its_edges(seed: int, shift: int, length: int) -> None:
    source, target = text(2000, seed, 0.2)
    start = 300 + seed % 800
    target[start : start + length] = np.roll(target[start : start + length], shift)
    (found,) = find_stretches(source, target)
    assert found.shift == shift
    assert abs(found.start - start) <= 25
    assert abs(found.stop - start - length) <= 25
    assert found.shifted is not None and found.shifted > 0.7 > found.aligned + 0.3


def test_a_missing_line_and_a_shuffled_stretch() -> None:
    source, target = text(3000, 1)
    (found,) = find_stretches(source[:-1], np.delete(target, 1000))
    assert (found.shift, found.stop) == (-1, 2999)
    assert abs(found.start - 1000) <= 25
    source, target = text(3000, 1, 0.2)
    target[1000:1300] = np.random.default_rng(5).permutation(target[1000:1300])
    (found,) = find_stretches(source, target)
    assert found.shift is None and found.shifted is None
    assert abs(found.start - 1000) <= 25 and abs(found.stop - 1300) <= 25


@pytest.mark.parametrize(("fraction", "noise"), [(0.1, 0.4), (0.3, 0.9), (0.9, 0.6)])
def test_a_freely_translated_part_is_no_fault(fraction: float, noise: float) -> None:
    literal, free = (
        text(round(6000 * fraction), 1, 0.1),
        text(round(6000 * (1 - fraction)), 2, noise),
    )
    source, target = (np.concatenate(sides) for sides in zip(literal, free, strict=True))
    assert find_stretches(source, target) == []
    # Equal lengths and few lines are no evidence.
    same = np.full(2000, 17)
    assert find_stretches(same, same) == []
    source, target = text(400, 1)
    assert find_stretches(source, np.random.default_rng(2).permutation(target)) == []
