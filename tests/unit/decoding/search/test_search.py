"""Which sentences leave a batch, and when."""

import pytest
import torch

from transformer.decoding.search.search import DONE, NAN, Sentences, kept_size


@pytest.mark.parametrize(
    ("searched", "rows", "kept"), [(32, 32, 32), (31, 32, 32), (30, 32, 30), (7, 8, 7), (1, 2, 1)]
)
def test_on_a_cpu_they_leave_when_one_in_16_is_done(searched: int, rows: int, kept: int) -> None:
    assert kept_size(searched, rows, torch.device("cpu")) == kept


def test_those_that_are_done_and_stay_end_once() -> None:
    sentences = Sentences(torch.full((40,), 9))
    outcomes = [0] * 40
    outcomes[3] = DONE
    assert sentences.end(outcomes) == [3] and sentences.leave() is None
    outcomes[5], outcomes[7] = DONE, NAN
    assert sentences.end(outcomes) == [5, 7]
    rows = sentences.leave()
    assert rows is not None and rows.tolist() == [i for i in range(40) if i not in (3, 5, 7)]
    assert sentences.searched == list(range(37)) and len(sentences.limits) == 37
