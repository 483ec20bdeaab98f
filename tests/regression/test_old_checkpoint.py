"""A checkpoint of an earlier version opens and translates as it did.

``format_1.ckpt`` was written by ``average`` at commit 3f92525, before the attention family: a model
of width 16, trained for 1,500 updates to copy phrases of ``tests/helpers/text.py``. What it
translated then, and how it scored that, stands here.
"""

from pathlib import Path

import pytest
import torch

from transformer.decoding.translation.translator import Translator
from transformer.model.checkpoint.checkpoint import PORTABLE, load_checkpoint, read_payload
from transformer.model.checkpoint.migrations import FORMAT
from transformer.model.config import ModelConfig
from transformer.training.config import run_config

OLD = Path(__file__).parent / "format_1.ckpt"

# Not all of them right: a copy alone could be told from the source.
RECORDED = {
    "beta epsilon": ("beta epsilon", -0.363568),
    "gamma alpha iota omega theta kappa": ("gamma alpha iota iota kappa theta", -0.720864),
    "omega eta zeta delta alpha alpha": ("omega zeta eta alpha delta alpha", -0.910074),
    "": ("", 0.0),
}


def test_it_translates_as_it_did() -> None:
    translations = Translator.load(OLD).translate(list(RECORDED))
    for translation, (text, score) in zip(translations, RECORDED.values(), strict=True):
        assert translation.text == text
        assert translation.score == pytest.approx(score, abs=2e-5)


def test_its_model_has_the_values_that_change_nothing() -> None:
    assert read_payload(OLD)[PORTABLE]["model"]["d_model"] == 16
    config = load_checkpoint(OLD).model.config
    assert config.pattern == "full" and config.num_kv_heads is None and config.layer_drop == 0
    assert ModelConfig(**config.to_dict()) == config


def test_its_run_can_go_on() -> None:
    """Every key that came later is filled in: the dataclasses themselves have no defaults."""
    config = run_config(read_payload(OLD)[PORTABLE]["config"])
    assert config.task == "translation"
    assert config.loss.alignment_weight == 0
    assert config.data.alignment is None and config.data.corpora is None
    assert not config.data.target_tag and config.data.documents is None
    assert (config.metrics.tokenize, config.metrics.lowercase) == ("13a", False)


def test_it_is_older_than_what_is_written_today() -> None:
    assert torch.load(OLD, weights_only=True)[PORTABLE]["format"] == 1 < FORMAT
