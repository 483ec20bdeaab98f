"""A comparison is told whole: to programs, to people and as a page."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.decoding.metrics import RAW
from transformer.common.errors import InputError
from transformer.evaluation.comparison import (
    ComparedText,
    Comparison,
    System,
    check_metrics,
    compare_systems,
)
from transformer.reports.comparison import format_comparison, print_comparison, save_comparison
from transformer.settings.evaluation import ComparisonKeys

REFERENCES = ["ein Hund | schläft [heute]", "zwei Katzen laufen `schnell`", "drei <Vögel> singen"]
TEXT = ComparedText(
    "validation", ["a dog", "two cats run fast", "three birds sing"], [(one,) for one in REFERENCES]
)
WORSE = ["ein Hund | schläft [nun]", "Katzen", "drei <Vögel> singen"]
SYSTEMS = [
    System("runs/[bold]a", WORSE, {"checkpoint": "a.ckpt"}),
    System("runs/b", REFERENCES, {"weights": "ema"}),
    System("runs/c", WORSE),
]
KEYS = ComparisonKeys(
    scores=("chrf", "bleu", "ter"),
    bootstrap=50,
    randomization=50,
    seed=1,
    lengths=(3, 4),
    frequencies=(1, 2),
    moved=1,
    moved_by="chrf",
)


def compared(training: list[str] | None) -> Comparison:
    return compare_systems(TEXT, SYSTEMS, KEYS, RAW, training)


def test_json_has_every_number_with_its_signature() -> None:
    told = json.loads(format_comparison(compared(["ein Hund", "ein Haus"])))
    assert (told["text"], told["sentences"]) == ("validation", 3)
    assert told["systems"][0] == {"name": "runs/[bold]a", "checkpoint": "a.ckpt"}
    assert [one["name"] for one in told["metrics"]] == ["chrF2", "BLEU", "TER"]
    assert [len(one["systems"]) for one in told["metrics"]] == [3, 3, 3]
    assert told["metrics"][1]["systems"][1]["score"] == pytest.approx(100)
    assert told["metrics"][1]["systems"][2]["p_bootstrap"] == 1.0
    buckets = told["by_length"]["buckets"]
    assert [(one["label"], one["sentences"]) for one in buckets] == [
        ("0-2", 1),
        ("3", 1),
        ("4+", 1),
    ]
    # Once: Hund. Twice: ein.
    frequencies = told["by_frequency"]["buckets"]
    assert [(one["label"], one["words"]) for one in frequencies][1:] == [("1", 1), ("2+", 1)]
    assert [one["system"] for one in told["moved"]] == ["runs/b", "runs/c"]
    assert (told["moved"][0]["better"], told["moved"][0]["same"]) == (2, 1)
    assert told["moved"][0]["most_better"][0]["line"] == 2
    assert (told["moved"][1]["same"], told["moved"][1]["most_better"]) == (3, [])
    signatures = [
        *(signature for metric in told["metrics"] for signature in metric["signatures"].values()),
        *(told[key]["signature"] for key in ("by_length", "by_frequency")),
        *told["sentence_signatures"].values(),
    ]
    assert len(signatures) == 3 * 3 + 2 + 3
    assert all("version:" in signature for signature in signatures)


def test_without_training_text_nothing_is_said_of_frequency(
    capsys: pytest.CaptureFixture[str],
) -> None:
    comparison = compared(None)
    assert comparison.to_json()["by_frequency"] is None
    print_comparison(comparison)
    assert "training" not in capsys.readouterr().err


def test_people_read_it_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compared(["ein Hund"]))
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.split("\n")
    assert "A       runs/[bold]a" in lines
    assert "B       runs/b (moving average of the weights, EMA)" in lines
    assert lines == [line.rstrip() for line in lines]
    [base, better, same] = [line.split() for line in lines if line.endswith(("base", "not sure"))][
        :3
    ]
    assert base[0] == "A" and base[-1] == "base"
    assert better[:2] == ["B", "100.00"]
    assert same[0] == "C" and same[-4:] == ["1.0000", "1.0000", "not", "sure"]
    assert "  reference  zwei Katzen laufen `schnell`" in lines
    assert any(line.startswith("TER, lower is better") for line in lines)


def test_no_bleu_is_shown_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["zwei Katzen", "ein Hund", "ein Hund schläft nun"]
    text = ComparedText("short", ["a b", "a b", "a b c d"], [(one,) for one in short])
    comparison = compare_systems(text, [System("a", short), System("b", short)], KEYS, RAW)
    first, second = comparison.to_json()["by_length"]["buckets"]
    assert (first["sentences"], first["bleu"]) == (2, None)
    assert second["bleu"] == pytest.approx((100, 100))
    print_comparison(comparison)
    lines = [line.rstrip() for line in capsys.readouterr().err.split("\n")]
    assert "BLEU by words of the source (none where no reference has 4 words)" in lines
    assert "0-2            2" in lines


def test_the_file_says_what_is_printed(tmp_path: Path) -> None:
    comparison = compared(["ein Hund"])
    save_comparison(tmp_path, comparison)
    assert sorted(os.listdir(tmp_path)) == ["comparison.json"]
    told = json.loads((tmp_path / "comparison.json").read_text())
    assert told == json.loads(format_comparison(comparison))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scores": ("bleu", "bleu")}, "one or more, each once"),
        ({"scores": ("meteor",)}, "metric meteor is unknown"),
        ({"lengths": (5, 3), "frequencies": (0,)}, r"lengths=.*; also frequencies=\[0\] must be"),
        ({"lengths": (3, 3)}, r"lengths=\[3, 3\] must be numbers above 0 that rise"),
        ({"moved": -1}, "moved=-1 must be at least 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(
    change: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        check_metrics(replace(KEYS, **change), RAW)  # type: ignore[arg-type]
