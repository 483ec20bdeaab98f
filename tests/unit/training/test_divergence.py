"""The detector of bad updates, against numbers worked out by hand."""

import math
from pathlib import Path

import pytest
import torch

from tests.helpers.training.updates import any_tokenizer, recovery_config
from transformer.data.batching.batch import collate
from transformer.data.batching.loader import Update
from transformer.training.divergence import Diverged, DivergenceDetector, save_text

NOTHING = Update.of([], [])


def accepted(detector: DivergenceDetector, loss: float, norm: float, number: int) -> bool:
    """Check an update, and count it."""
    good = bool(detector.accepts(torch.tensor(loss), torch.tensor(norm)))
    detector.count(good, loss, norm, number)
    return good


def seasoned(**changes: float | int | None) -> DivergenceDetector:
    """A detector after twenty good updates with a loss of 2 nats."""
    detector = DivergenceDetector(recovery_config(**changes))
    assert all(accepted(detector, 2.0, 1.0, number) for number in range(20))
    return detector


def test_a_bad_update_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    for loss, norm, reason in (
        (math.nan, 1.0, "its loss is nan"),
        (2.0, math.inf, "the norm of its gradient is inf"),
        (7.1, 1.0, "7.10 where 2.00 is usual"),
    ):
        detector = seasoned()
        assert not accepted(detector, loss, norm, 21)
        assert reason in caplog.text and "1 in a row, 1 in all" in caplog.text
        assert accepted(detector, 6.9, 1e9, 22)
        assert (detector.in_a_row, detector.skipped) == (0, 1)


def test_losses_that_are_good() -> None:
    for explosion, losses in (
        (5.0, [2.0, 2.0, 40.0]),  # no loss is usual at the start
        (None, [2.0] * 20 + [1e30]),
        (5.0, [2.0] * 20 + [4.0, 5.0, 6.0] * 40 + [9.9]),  # the median follows the run
    ):
        detector = DivergenceDetector(recovery_config(explosion=explosion))
        assert all(accepted(detector, loss, 1.0, number) for number, loss in enumerate(losses))


def test_too_many_bad_updates_in_a_row_are_a_divergence() -> None:
    detector = seasoned(skips=3)
    for number in (21, 22):
        assert not accepted(detector, math.nan, 1.0, number)
        detector.raise_if_diverged(NOTHING, number)
    assert accepted(detector, 2.0, 1.0, 23)
    for number in (24, 25, 26):
        assert not accepted(detector, math.nan, 1.0, number)
    with pytest.raises(Diverged, match="26") as raised:
        detector.raise_if_diverged(NOTHING, 26)
    assert (raised.value.update, raised.value.number) == (NOTHING, 26)


def test_a_resumed_detector_decides_alike() -> None:
    detector, resumed = seasoned(skips=3), DivergenceDetector(recovery_config(skips=3))
    accepted(detector, math.nan, 1.0, 21)
    detector.returned = 2
    state = detector.state_dict()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert (resumed.in_a_row, resumed.skipped, resumed.lr_scale) == (1, 1, 0.25)
    assert not accepted(resumed, 7.1, 1.0, 22)


def test_the_batch_of_a_divergence_is_saved_as_text(tmp_path: Path) -> None:
    tokenizer = any_tokenizer()
    batch = collate(tokenizer.encode_source(["aa", "a"]), tokenizer.encode_target(["b", "bbb"]))
    diverged = Diverged("why", Update.of([batch, batch], [0, 1]), 7)
    file = save_text(diverged, tmp_path, 0, tokenizer)
    assert file.name == "diverged-at-7-rank-0.txt"
    assert file.read_text() == 2 * "aa\tb\na\tbbb\n"
