"""Which key is meant: by the last part of its name, or by what other toolkits call it."""

import pytest
from omegaconf import DictConfig

from transformer.cli.arguments import ELSEWHERE, known_keys, nearest_key
from transformer.cli.config import compose_config


@pytest.fixture(scope="module")
def train() -> DictConfig:
    return compose_config("train", [])


@pytest.fixture(scope="module")
def translate() -> DictConfig:
    return compose_config("translate", ["checkpoint=x"])


def test_what_other_toolkits_say_is_a_key_here(train: DictConfig, translate: DictConfig) -> None:
    evaluate = compose_config("evaluate", ["checkpoint=x"])
    known = {"hydra.run.dir"}.union(*map(known_keys, (train, translate, evaluate)))
    assert {key for keys in ELSEWHERE.values() for key in keys} <= known
    # A name of our own needs no translation, but where a verb lacks it.
    assert {name for name in ELSEWHERE if name in known} <= {"device", "metrics", "model"}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("optimizer.learning_rate", "optimizer.lr"),
        ("beam_size", "decoding.beam_size"),
        ("max_epochs", "trainer.max_epochs"),
        ("warmup-steps", "schedule.warmup"),
        ("model.layers", "model.encoder_layers"),
        ("trainer.seed", "seed"),
        ("max_length", "data.max_length or model.max_length"),
        ("callbacks.ema", "callbacks.ema_decay"),
        ("save_dir", "hydra.run.dir"),
    ],
)
def test_a_key_of_train_is_found(key: str, meant: str, train: DictConfig) -> None:
    assert nearest_key(key, [*known_keys(train), "hydra.run.dir"]) == f" (did you mean {meant}?)"


def test_a_key_of_translate_is_its_own(translate: DictConfig) -> None:
    own = {"beam": "decoding.beam_size", "batch_size": "batch_tokens", "gpus": "device"}
    for key, meant in own.items():
        assert nearest_key(key, known_keys(translate)) == f" (did you mean {meant}?)"
    assert nearest_key("learning_rate", known_keys(translate)) == ""
