"""Words for messages."""

from transformer.errors import did_you_mean


def test_the_name_itself_is_not_what_was_meant() -> None:
    assert did_you_mean("train.en", ["train.en"]) == ""
    assert did_you_mean("train.en", ["train.en", "train.de"]) == " (did you mean train.de?)"
