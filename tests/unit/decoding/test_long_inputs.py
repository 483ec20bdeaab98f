"""Where a text that is too long is cut."""

import pytest

from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.long_inputs import SourceLimits, part_lengths, split_segments


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
def test_part_lengths(subwords: str, limit: int, lengths: list[int]) -> None:
    assert part_lengths(subwords.split(), limit) == lengths


def test_the_first_part_alone_has_the_prefix() -> None:
    given = Constraints(prefix="ein", must=("Hund",), never=("Katze",))
    parts = split_segments([5, 6, 7, 8, 9], given, tiny_tokenizer(), SourceLimits(2, 2))
    assert len(parts) > 1
    prefixes = [part.constraints and part.constraints.prefix for part in parts]
    assert prefixes == ["ein", *[""] * (len(parts) - 1)]
    assert all(p.constraints and p.constraints.never == ("Katze",) for p in parts)
