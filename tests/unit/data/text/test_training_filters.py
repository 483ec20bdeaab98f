"""What is left out of the training text is counted by its reason."""

from collections import Counter

import pytest

from transformer.common.errors import InputError
from transformer.data.text.training_filters import Filters, first_occurrences

FILTERS = Filters(max_length=10, max_ratio=2.0, deduplicate=True)


def test_a_pair_is_left_out_for_the_first_reason_that_holds() -> None:
    lengths = [(0, 5), (9, 11), (10, 4), (10, 10), (5, 10)]
    reasons = [FILTERS.reason(source, target) for source, target in lengths]
    assert reasons == ["empty", "length", "ratio", None, None]
    unbound = Filters(max_length=100, max_ratio=None, deduplicate=False)
    assert [unbound.reason(*pair) for pair in lengths] == ["empty", None, None, None, None]


def test_only_the_first_of_equal_pairs_is_marked() -> None:
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("ab", ""), ("a", "b"), ("", "ab")]
    assert first_occurrences(pairs).tolist() == [True, True, False, True, False, True]


@pytest.mark.parametrize(
    ("dropped", "limit"),
    [(Counter(length=100), 0.05), (Counter(duplicate=800, length=101), 0.5)],
)
def test_more_left_out_than_the_limit_is_refused(dropped: Counter[str], limit: float) -> None:
    """Repeated pairs do not count, and enough must be left without them."""
    with pytest.raises(InputError, match=r"train: \d{2,3} of 1,000 pairs .*max_left_out=1 "):
        FILTERS.report("train", dropped, 1000, limit)


def test_much_that_is_left_out_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        FILTERS.report("train", Counter(length=100), 1000, 0.1)
        FILTERS.report("train", Counter(length=101), 1000, 0.5)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
