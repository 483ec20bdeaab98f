"""What is left out of the training text is counted by its reason."""

from collections import Counter

import pytest

from transformer.common.errors import InputError
from transformer.data.text.training_filters import Filters, first_occurrences

FILTERS = Filters(max_length=10, max_ratio=2.0, deduplicate=True)


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (0, 5, "empty"),
        (5, 0, "empty"),
        (11, 9, "length"),
        (9, 11, "length"),
        (10, 10, None),
        (5, 10, None),
        (10, 4, "ratio"),
    ],
)
def test_the_reason(source: int, target: int, reason: str | None) -> None:
    assert FILTERS.reason(source, target) == reason
    unbound = Filters(max_length=100, max_ratio=None, deduplicate=False)
    assert unbound.reason(source, target) == (reason if reason == "empty" else None)


def test_only_the_first_of_equal_pairs_is_marked() -> None:
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("ab", ""), ("a", "b"), ("", "ab")]
    assert first_occurrences(pairs).tolist() == [True, True, False, True, False, True]


@pytest.mark.parametrize(
    ("dropped", "limit", "level"),
    [
        (Counter(length=100), 0.1, "INFO"),
        (Counter(length=100), 0.05, "refused"),
        (Counter(length=101), 0.5, "WARNING"),
        # Repeated pairs do not count, and enough must be left without them.
        (Counter(duplicate=900), 0.5, "WARNING"),
        (Counter(duplicate=800, length=101), 0.5, "refused"),
    ],
)
def test_much_that_is_left_out_is_a_warning_or_refused(
    dropped: Counter[str], limit: float, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    if level == "refused":
        with pytest.raises(InputError, match=r"train: \d{2,3} of 1,000 pairs .*max_left_out=1 "):
            FILTERS.report("train", dropped, 1000, limit)
        return
    with caplog.at_level("INFO"):
        FILTERS.report("train", dropped, 1000, limit)
    assert [record.levelname for record in caplog.records] == [level]


def test_the_log_accounts_for_every_pair(caplog: pytest.LogCaptureFixture) -> None:
    dropped = Counter(empty=1, length=300, ratio=20, duplicate=3)
    with caplog.at_level("INFO"):
        FILTERS.report("train", dropped, 2000, 0.5, "sentences")
        FILTERS.report("train", Counter(empty=0), 9)
    assert caplog.messages == [
        "train: 1,676 of 2,000 sentences kept; left out (16.2%): 1 with an empty side, 300 longer "
        "than 10 tokens (data.max_length), 20 of a length ratio over 2.0 (data.max_ratio), 3 exact "
        "duplicates (data.deduplicate); set these keys so that more stays, if the text "
        "is good",
        "train: 9 of 9 pairs kept",
    ]
