"""Flags are counted beside those of references; the thresholds of a run can be read again."""

from dataclasses import replace
from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.decoding.translator import Candidate, Translation
from transformer.quality.failures.flags import Detector, Output
from transformer.quality.failures.monitor import as_output, find_failures
from transformer.quality.failures.thresholds import FILE, Thresholds, lowest_usual
from transformer.settings.data import DataConfig

DATA = DataConfig(source="en", target="de")
SOURCES = ["a dog", "a cat", "a bird", "a fish", ""]
TARGETS = [("ein Hund",), ("eine Katze",), ("ein Vogel",), ("",), ("",)]
STUCK = "das ist ein sehr langer Satz"


def test_flags_are_counted_beside_those_of_references() -> None:
    outputs = [*map(Output, [STUCK] * 3), Output("Fisch", is_unfinished=True), Output("")]
    found = find_failures(Detector(Thresholds(low_confidence=-9.0)), SOURCES, TARGETS, outputs)
    assert found.names[:3] == ("empty", "repetition", "detached")
    assert found.lines("detached") == [0, 1, 2]
    values = found.to_json()
    assert values["sentences"] == 4  # a blank line separates documents
    assert values["flags"]["empty"] == {"hypothesis": 0, "reference": 1, "lines": []}
    assert values["flags"]["unfinished"] == {"hypothesis": 1, "reference": 0, "lines": [3]}
    assert values["flags"]["low_confidence"] == {"hypothesis": 0, "reference": None, "lines": []}
    rates = found.rates()
    assert rates["detached"] == 75.0
    assert [name for name in rates if name.endswith("_reference")] == ["empty_reference"]
    # One source may have the same output again and again.
    stuck = find_failures(Detector(Thresholds()), ["a dog"] * 3, TARGETS[:3], outputs[:3])
    assert stuck.lines("detached") == []
    # Where no blanks stand between words, characters are counted.
    chinese = [Output("我喜欢在早上喝一杯热咖啡，因为它让我清醒。")] * 3
    stuck = find_failures(Detector(Thresholds()), SOURCES[:3], TARGETS[:3], chinese)
    assert stuck.lines("detached") == [0, 1, 2]
    unlikely = [Output(text, -10.0) for text, *_ in TARGETS]
    found = find_failures(Detector(Thresholds(low_confidence=-9.0)), SOURCES, TARGETS, unlikely)
    assert found.lines("low_confidence") == [0, 1, 2]
    assert found.reference_count("low_confidence") is None


def test_an_output_has_its_log_probability_per_token() -> None:
    best = Candidate("x y", -1.0, -3.0, ("x", "y"), 3)
    translation = Translation("x y", -1.0, best.tokens, (best,), ("a", "b"))
    assert as_output(translation) == Output("x y", -1.0, is_unfinished=False)
    assert as_output(replace(translation, nbest=(replace(best, is_unfinished=True),))).is_unfinished


def test_thresholds_are_read_as_they_were_written(tmp_path: Path) -> None:
    pairs = [(f"the dog {'x' * (n % 7)} sleeps", f"der Hund {'y' * (n % 5)}") for n in range(300)]
    usual = replace(Thresholds.fit([*pairs, ("", "leer")], DATA), low_confidence=-1.5)
    assert usual.tails is not None and usual.tails[0] < 0 < usual.tails[1]
    assert usual.scripts == ("LATIN",)
    assert "hund" in usual.common[1]
    usual.write(tmp_path)
    assert Thresholds.read(tmp_path, DataConfig()) == usual
    assert Thresholds.fit(pairs[:100], DATA).tails is None
    assert Thresholds.read(tmp_path / "missing", DATA) == Thresholds((("en", "de"),))
    for text in ("{", '{"tail": 1}', '{"low_confidence": "x"}'):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(InputError, match=FILE):
            Thresholds.read(tmp_path, DATA)


def test_one_in_a_hundred_is_unlikely() -> None:
    assert lowest_usual([-1.0] * 199) is None
    values = [-float(n) for n in range(1000)]
    lowest = lowest_usual(values)
    assert lowest is not None and sum(value < lowest for value in values) == 10
