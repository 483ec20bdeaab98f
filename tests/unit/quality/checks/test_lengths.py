"""Which pairs are too long."""

from transformer.data.corpora.split import NumberedPair
from transformer.quality.checks.lengths import find_overlong


def test_a_side_may_have_the_maximum_of_tokens() -> None:
    assert find_overlong(5, NumberedPair(1, "a", "b", 5, 5)) is None
    fault = find_overlong(5, NumberedPair(1, "a", "b", 5, 6))
    assert fault is not None and fault.side == "target" and "6 tokens" in fault.message
