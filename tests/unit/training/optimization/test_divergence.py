"""Which updates are left out, when a run gives up, and what the user gets to see."""

import math
from pathlib import Path

import pytest
import torch

from tests.helpers.training.updates import recovery_config
from transformer.data.batching.batch import collate
from transformer.data.batching.loader import Update
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.training.optimization.divergence import (
    Diverged,
    DivergenceDetector,
    save_text,
)

NOTHING = Update.of([], [])


def judged(detector: DivergenceDetector, loss: float, norm: float, number: int) -> bool:
    """Judge an update, and count it."""
    good = bool(detector.accepts(torch.tensor(loss), torch.tensor(norm)))
    detector.count(good, loss, norm, number)
    return good


def seasoned(**changes: float | int | None) -> DivergenceDetector:
    """A judge who has seen twenty good updates of a loss of 2 nats."""
    detector = DivergenceDetector(recovery_config(**changes))
    assert all(judged(detector, 2.0, 1.0, number) for number in range(20))
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
    assert not judged(detector, loss, norm, 21)
    assert caplog.messages == [f"update 21 is skipped: {reason} (1 in a row, 1 in all)"]
    assert judged(detector, 6.9, 1e9, 22)
    assert (detector.in_a_row, detector.skipped) == (0, 1)


@pytest.mark.parametrize(
    ("explosion", "losses"),
    [
        (5.0, [2.0, 2.0, 40.0]),  # at the start no loss is a surprise
        (None, [2.0] * 20 + [1e30]),
        (5.0, [2.0] * 20 + [4.0, 5.0, 6.0] * 40 + [9.9]),  # the median follows the run
    ],
)
def test_losses_that_are_good(explosion: float | None, losses: list[float]) -> None:
    detector = DivergenceDetector(recovery_config(explosion=explosion))
    assert all(judged(detector, loss, 1.0, number) for number, loss in enumerate(losses))
    assert not judged(detector, math.nan, 1.0, len(losses))


def test_too_many_in_a_row_are_a_divergence() -> None:
    detector = seasoned(skips=3)
    for number in (21, 22):
        assert not judged(detector, math.nan, 1.0, number)
        detector.raise_if_diverged(NOTHING, number)
    assert judged(detector, 2.0, 1.0, 23)
    for number in (24, 25, 26):
        assert not judged(detector, math.nan, 1.0, number)
    with pytest.raises(Diverged, match="3 bad updates in a row, the last of them 26") as raised:
        detector.raise_if_diverged(NOTHING, 26)
    assert (raised.value.update, raised.value.number) == (NOTHING, 26)


def test_a_resumed_judge_judges_alike() -> None:
    detector, resumed = seasoned(skips=3), DivergenceDetector(recovery_config(skips=3))
    judged(detector, math.nan, 1.0, 21)
    detector.returned = 2
    resumed.load_state_dict(detector.state_dict())
    assert resumed.state_dict() == detector.state_dict()
    assert (resumed.in_a_row, resumed.skipped, resumed.lr_scale) == (1, 1, 0.25)
    assert not judged(resumed, 7.1, 1.0, 22)
    before = detector.state_dict()
    detector.returned = 3
    detector.load_state_dict(before)
    assert detector.returned == 3


def test_the_batch_is_saved_as_text(
    tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources, targets = ["a b c", "e"], ["c b a", "e d"]
    batch = collate(tokenizer.encode_source(sources), tokenizer.encode_target(targets))
    diverged = Diverged("why", Update.of([batch, batch], [0, 1]), 7)
    file = save_text(diverged, tmp_path, 0, tokenizer)
    assert file.name == "diverged-at-7-rank-0.txt"
    assert file.read_text() == 2 * "a b c\tc b a\ne\te d\n"
    file = save_text(diverged, tmp_path / "nowhere", 0, tokenizer)
    assert f"{file} cannot be written: No such file or directory" in caplog.text


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    from tests.helpers.data.corpora import SENTENCES, tokenizer_config

    folder: Path = tmp_path_factory.mktemp("vocabulary")
    return Tokenizer.train(
        tokenizer_config(), lambda: zip(SENTENCES, SENTENCES, strict=True), folder
    )
