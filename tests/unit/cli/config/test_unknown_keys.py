"""Which key is meant: by the last part of its name, or a similar name."""

import pytest
from omegaconf import DictConfig

from transformer.cli.config.arguments import nearest_key
from transformer.cli.config.compose import compose_config


@pytest.fixture(scope="module")
def train() -> DictConfig:
    return compose_config("train", [])


@pytest.fixture(scope="module")
def translate() -> DictConfig:
    return compose_config("translate", ["checkpoint=x"])


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("beam_size", "decoding.beam_size"),
        ("max_epochs", "trainer.max_epochs"),
        ("trainer.seed", "seed"),
        ("max_length", "data.max_length or model.max_length"),
        ("callbacks.ema", "callbacks.ema_decay"),
    ],
)
def test_a_key_of_train_is_found(key: str, meant: str, train: DictConfig) -> None:
    assert nearest_key(key, train) == f" (did you mean {meant}?)"


def test_a_key_of_translate_is_its_own(translate: DictConfig) -> None:
    own = {"beam_size": "decoding.beam_size", "batch_token": "batch_tokens"}
    for key, meant in own.items():
        assert nearest_key(key, translate) == f" (did you mean {meant}?)"
    assert nearest_key("learning_rate", translate) == ""
