"""Checkpoints that earlier versions wrote load and translate; older formats are refused by name.

A file is added here with each new format, and none is taken away while docs/reliability.md
promises that it is read.
"""

from pathlib import Path

import pytest
import torch

from transformer.checkpoint.checkpoint import PORTABLE
from transformer.common.errors import InputError
from transformer.decoding.translator import Translator

HERE = Path(__file__).parent


def test_format_9() -> None:
    """A step of a run of 300 updates on made-up text, written by commit 761d1c6f."""
    translator = Translator.load(HERE / "format_9.ckpt")
    first, second = translator.translate(["beta epsilon", "iota iota delta"])
    assert first.text == "delta epsilon"
    assert second.text == "iota iota elta iota iota delota delta delta"
    assert (first.score, second.score) == pytest.approx((-2.16299, -3.10437), abs=1e-3)


def test_format_8_is_refused(tmp_path: Path) -> None:
    """It was written before the first promise, and had the model beside the config."""
    former = {"format": 8, "model": {"d_model": 16}, "tokenizer": {}, "config": {"seed": 1}}
    torch.save({"state_dict": {}, PORTABLE: former}, tmp_path / "x.ckpt")
    with pytest.raises(InputError, match=r"x\.ckpt.* has format '8', this version reads format 9"):
        Translator.load(tmp_path / "x.ckpt")
