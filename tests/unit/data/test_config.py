"""A value out of its range is named with its key."""

from pathlib import Path

import pytest

from tests.helpers.data.corpora import data_config, tokenizer_config
from transformer.common.errors import InputError
from transformer.data.config import CorpusConfig


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("workers", -1, r"data\.workers=-1 must be at least 0"),
        ("max_ratio", 0.5, r"data\.max_ratio=0\.5 must be at least 1"),
        ("max_left_out", 1.5, r"data\.max_left_out=1\.5 must be from 0 to 1"),
        ("buffer", 0, r"data\.buffer=0 must be at least 1"),
        ("corpora", {}, r"data\.corpora={} names none"),
        ("corpora", {"web": CorpusConfig(test_size=-1)}, r"data\.corpora\.web\.test_size=-1 must"),
        ("vocab_size", 4, r"tokenizer\.vocab_size=4 must be at least 5"),
        ("character_coverage", 0.5, r"character_coverage=0\.5 must be from 0\.98 to 1"),
        ("sampling", 2.0, r"tokenizer\.sampling=2\.0 must be from 0 to 1"),
    ],
)
def test_a_number_out_of_range_is_named(tmp_path: Path, key: str, value: object, says: str) -> None:
    tokenizer = key in vars(tokenizer_config())
    with pytest.raises(InputError, match=says):
        _ = tokenizer_config(**{key: value}) if tokenizer else data_config(tmp_path, **{key: value})
