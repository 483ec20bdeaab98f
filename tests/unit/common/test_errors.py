"""Messages name the place of an error once, and list every objection."""

import pytest

from transformer.common.errors import (
    InputError,
    did_you_mean,
    errors_name,
    raise_objections,
    some_of,
)


@pytest.mark.parametrize(
    ("file", "message", "shown"),
    [
        ("a.tsv", "line 3 has no tab", "a.tsv: line 3 has no tab"),
        ("a.tsv", "a.tsv:3 has no tab", "a.tsv:3 has no tab"),
        ("a.tsv", "/data/a.tsv: no tab", "/data/a.tsv: no tab"),
        # A name within a word or a longer name is not the place.
        ("in", "the line has no tab", "in: the line has no tab"),
        ("runs/a", "runs/a-1 is gone", "runs/a: runs/a-1 is gone"),
    ],
)
def test_a_message_begins_with_its_file_unless_it_names_it(
    file: str, message: str, shown: str
) -> None:
    with pytest.raises(InputError) as raised, errors_name(file):
        raise InputError(message)
    assert str(raised.value) == shown


def test_all_objections_are_one_error_up_to_ten() -> None:
    raise_objections([])
    with pytest.raises(InputError) as raised:
        raise_objections(f"key_{number} is wrong" for number in [*range(12), 0])
    assert str(raised.value).count("is wrong") == 10
    assert str(raised.value).endswith("; and 2 more")


def test_a_long_list_ends_in_an_ellipsis() -> None:
    names = list("abcdefghijklmnopqrstu")
    assert some_of(names[:20]) == ", ".join(names[:20])
    assert some_of(names, " or ").endswith("s or t or …")


def test_the_nearest_other_name_is_proposed() -> None:
    assert did_you_mean("lenght", ["length", "width"]) == " (did you mean length?)"
    assert did_you_mean("zzz", ["length", "width"]) == ""
    assert did_you_mean("length", ["length"]) == ""
