"""A corpus as plain files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from transformer.commands.text import text
from transformer.common.errors import InputError
from transformer.settings.corpora import TextConfig
from transformer.settings.data import DataConfig


def test_right_answers_of_a_source_do_not_become_sources(tmp_path: Path) -> None:
    file = tmp_path / "text.jsonl"
    file.write_text(json.dumps({"x": "a", "y": ["b", "c"]}) + "\n")
    data = DataConfig(
        corpus="files", source="x", target="y", train=str(file), validation=str(file), test_size=0
    )
    output = tmp_path / "out"
    with pytest.raises(InputError, match="the validation text has several right targets"):
        text(TextConfig(output=output, data=data))
    assert not output.exists()
    # Training takes each answer as a pair.
    text(TextConfig(output=output, data=data, splits=["train"]))
    assert (output / "train.x").read_text() == "a\na\n"
    assert (output / "train.y").read_text() == "b\nc\n"
    repeated = replace(data, repeated_sources=True)
    text(TextConfig(output=output, data=repeated, splits=["validation"]))
    assert (output / "validation.y").read_text() == "b\nc\n"
