"""Ranges of the fields of a config, unknown keys, and parts of messages."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from transformer.common.errors import ALSO, InputError, did_you_mean, raise_objections
from transformer.common.schema import Range, typed


@dataclass(frozen=True)
class Config:
    size: Annotated[int, Range(1)] = 1
    rate: Annotated[float, Range(0, below=1)] = 0.5
    limit: Annotated[float, Range(above=0, most=2)] | None = None


def test_ranges() -> None:
    typed(Config, {"limit": 2.0, "rate": 0.0}, "x")
    for values, messages in (
        ({"size": 0}, ["x.size=0 must be at least 1"]),
        ({"rate": 1.0}, ["x.rate=1.0 must be at least 0 and below 1"]),
        ({"rate": float("nan")}, ["x.rate=nan must be at least 0 and below 1"]),
        ({"limit": 0.0}, ["x.limit=0.0 must be above 0 and at most 2"]),
        ({"size": -1, "limit": 3}, ["x.size=-1 must be at least 1", "x.limit=3.0 must be above 0"]),
    ):
        with pytest.raises(InputError) as caught:
            typed(Config, values, "x")
        for objection, message in zip(str(caught.value).split(ALSO), messages, strict=True):
            assert objection.startswith(message)


def test_an_unknown_key_of_a_file_is_named_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^x\.si⟨U\+000D⟩ze is not a setting of x"):
        typed(Config, {"si\rze": 1}, "x")


def test_the_name_itself_is_not_what_was_meant() -> None:
    assert did_you_mean("train.en", ["train.en"]) == ""
    assert did_you_mean("train.en", ["train.en", "train.de"]) == " (did you mean train.de?)"


def test_more_than_ten_objections_are_counted() -> None:
    with pytest.raises(InputError) as caught:
        raise_objections(str(number) for number in (*range(13), 12))
    assert str(caught.value) == "; also ".join(map(str, range(10))) + "; and 3 more"
    with pytest.raises(InputError, match=r"^0; also 1$"):
        raise_objections(["0", "1"])
