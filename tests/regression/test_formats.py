"""Checkpoints that earlier versions wrote load and translate; older formats are refused by name.

A file is added here with each new format, and none is taken away while docs/reliability.md
promises that it is read.
"""

from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.decoding.translation.translator import Translator

HERE = Path(__file__).parent


def test_format_8() -> None:
    """A step of a run of 300 updates on made-up text, written by commit 5ecde1a4."""
    translator = Translator.load(HERE / "format_8.ckpt")
    first, second = translator.translate(["beta epsilon", "iota iota delta"])
    assert first.text == "delta epsilon"
    assert second.text == "iota iota elta iota iota delota delta delta"
    assert (first.score, second.score) == pytest.approx((-2.16299, -3.10437), abs=1e-3)


def test_format_1_is_refused() -> None:
    """``average`` wrote this file at commit 3f92525, before the first promise."""
    with pytest.raises(InputError, match=r"format_1\.ckpt.* has format '1', this version reads"):
        Translator.load(HERE / "format_1.ckpt")
