"""Which updates are left out, when a run gives up, and what the user gets to see."""

import math
from pathlib import Path

import pytest

from tests.helpers.updates import recovery_config
from transformer.common.errors import InputError
from transformer.data.batching.batch import collate
from transformer.data.batching.loader import Update
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.training.optimization.divergence import (
    Diverged,
    DivergenceDetector,
    batch_text,
    save_text,
)

NOTHING = Update.of([], [])


def seasoned(**changes: float | int | None) -> DivergenceDetector:
    """A judge who has seen twenty good updates of a loss of 2 nats."""
    detector = DivergenceDetector(recovery_config(**changes))
    assert all(detector.is_good(2.0, 1.0, number) for number in range(20))
    return detector


@pytest.mark.parametrize(
    ("loss", "norm", "reason"),
    [
        (math.nan, 1.0, "its loss is nan"),
        (math.inf, 1.0, "its loss is inf"),
        (2.0, math.nan, "the norm of its gradient is nan"),
        (2.0, math.inf, "the norm of its gradient is inf"),
        (7.1, 1.0, "its loss is 7.10 where 2.00 is usual"),
    ],
)
def test_what_would_do_harm_is_left_out(
    loss: float, norm: float, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    detector = seasoned()
    assert not detector.is_good(loss, norm, 21)
    assert caplog.messages == [f"update 21 is left out: {reason} (1 in a row, 1 in all)"]
    assert detector.is_good(6.9, 1e9, 22)
    assert (detector.in_a_row, detector.skipped) == (0, 1)


def test_a_high_loss_is_no_surprise_at_the_start() -> None:
    detector = DivergenceDetector(recovery_config())
    assert [detector.is_good(loss, 1.0, 1) for loss in (2.0, 2.0, 40.0)] == [True] * 3


def test_without_a_bound_every_number_is_good() -> None:
    detector = seasoned(explosion=None)
    assert detector.is_good(1e30, 1.0, 21)
    assert not detector.is_good(math.nan, 1.0, 22)


def test_the_usual_follows_the_run() -> None:
    detector = seasoned()
    for number, loss in enumerate([4.0, 5.0, 6.0] * 40):
        assert detector.is_good(loss, 1.0, number)
    assert detector.is_good(9.9, 1.0, 200)


def test_too_many_in_a_row_are_a_divergence() -> None:
    detector = seasoned(skips=3)
    for number in (21, 22):
        assert not detector.is_good(math.nan, 1.0, number)
        detector.raise_if_diverged(NOTHING, number)
    assert detector.is_good(2.0, 1.0, 23)
    for number in (24, 25, 26):
        assert not detector.is_good(math.nan, 1.0, number)
    with pytest.raises(Diverged, match="3 bad updates in a row, the last of them 26") as raised:
        detector.raise_if_diverged(NOTHING, 26)
    assert (raised.value.update, raised.value.number) == (NOTHING, 26)


def test_a_resumed_judge_judges_alike() -> None:
    detector, resumed = seasoned(skips=3), DivergenceDetector(recovery_config(skips=3))
    detector.is_good(math.nan, 1.0, 21)
    detector.returned = 2
    resumed.load_state_dict(detector.state_dict())
    assert resumed.state_dict() == detector.state_dict()
    assert (resumed.in_a_row, resumed.skipped, resumed.lr_scale) == (1, 1, 0.25)
    assert not resumed.is_good(7.1, 1.0, 22)


def test_going_back_does_not_forget_that_it_has() -> None:
    detector = seasoned()
    before = detector.state_dict()
    detector.returned = 1
    detector.load_state_dict(before)
    assert detector.returned == 1


@pytest.mark.parametrize(
    "changes",
    [{"explosion": 0.0}, {"skips": 0}, {"returns": -1}, {"lr_factor": 0.0}, {"lr_factor": 1.5}],
)
def test_settings_without_a_meaning_are_refused(changes: dict[str, float]) -> None:
    (key,) = changes
    with pytest.raises(InputError, match=f"recovery.{key}="):
        recovery_config(**changes)


def test_the_batch_is_shown_as_text(tokenizer: Tokenizer) -> None:
    sources, targets = ["a b c", "e"], ["c b a", "e d"]
    batch = collate(tokenizer.encode_source(sources), tokenizer.encode_target(targets))
    assert batch_text(Update.of([batch, batch], [0, 1]), tokenizer) == 2 * "a b c\tc b a\ne\te d\n"


def test_where_it_cannot_be_written_the_log_says_so(
    tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = save_text(Diverged("why", NOTHING, 7), tmp_path / "nowhere", 0, tokenizer)
    assert file.name == "diverged-at-7-rank-0.txt"
    assert f"{file} cannot be written: No such file or directory" in caplog.text


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    from tests.helpers.corpora import SENTENCES, tokenizer_config

    folder: Path = tmp_path_factory.mktemp("vocabulary")
    return Tokenizer.train(
        tokenizer_config(), lambda: zip(SENTENCES, SENTENCES, strict=True), folder
    )
