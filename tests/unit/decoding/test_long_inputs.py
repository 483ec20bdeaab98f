"""Where a text that is too long is cut."""

import pytest

from transformer.decoding.long_inputs import segment_lengths


@pytest.mark.parametrize(
    ("subwords", "limit", "lengths"),
    [
        ("▁a b ▁c d ▁e", 3, [2, 3]),  # before a word
        ("▁a . ▁b ▁c ▁d", 4, [2, 3]),  # rather after a sentence
        ("▁a . ▁b ! ▁c ▁d", 5, [4, 2]),  # rather after the last one
        ("▁a b c d e", 2, [2, 2, 1]),  # no place is good
        ("", 3, [0]),
    ],
)
def test_segment_lengths(subwords: str, limit: int, lengths: list[int]) -> None:
    assert segment_lengths(subwords.split(), limit) == lengths
