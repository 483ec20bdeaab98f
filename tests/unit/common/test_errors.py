"""Words for messages."""

import pytest

from transformer.common.errors import InputError, did_you_mean, raise_objections


def test_the_name_itself_is_not_what_was_meant() -> None:
    assert did_you_mean("train.en", ["train.en"]) == ""
    assert did_you_mean("train.en", ["train.en", "train.de"]) == " (did you mean train.de?)"


def test_more_than_ten_objections_are_counted() -> None:
    with pytest.raises(InputError) as caught:
        raise_objections(str(number) for number in (*range(13), 12))
    assert str(caught.value) == "; also ".join(map(str, range(10))) + "; and 3 more"
    with pytest.raises(InputError, match=r"^0; also 1$"):
        raise_objections(["0", "1"])
