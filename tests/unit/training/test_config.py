"""Plain values become typed ones, or an error that names the key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from omegaconf import OmegaConf

from tests.helpers.models import tiny_config
from transformer.cli.config.compose import compose_config
from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.model.config import ModelConfig
from transformer.training.config import run_config


@dataclass(frozen=True)
class Inner:
    size: int
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class Settings:
    count: int
    rate: float
    name: str
    flag: bool
    choice: Literal["a", "b"]
    pair: tuple[float, float]
    files: str | Sequence[str] | None
    limit: float | None = None
    inner: Mapping[str, Inner] | None = None


VALUES: dict[str, Any] = {
    "count": 3,
    "rate": 0.5,
    "name": "x",
    "flag": True,
    "choice": "b",
    "pair": [0.9, 1],
    "files": ["a.en", "a.de"],
}


def test_values_get_the_types_of_the_fields() -> None:
    settings = typed(Settings, VALUES | {"rate": 1, "limit": 2}, "here")
    assert settings == Settings(3, 1.0, "x", True, "b", (0.9, 1.0), ("a.en", "a.de"), 2.0)
    for value in (settings.rate, settings.limit, *settings.pair):
        assert type(value) is float


def test_a_mapping_holds_settings_of_its_own() -> None:
    inner = {"x": {"size": 1, "names": ["a"]}, 2: {"size": 2}}
    settings = typed(Settings, VALUES | {"inner": inner}, "here")
    assert settings.inner == {"x": Inner(1, ("a",)), "2": Inner(2)}


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ({"x": {"szie": 1}}, "here.inner.x.szie is not a setting of here.inner.x (did you mean"),
        ({"x": {"size": "1"}}, "here.inner.x.size='1' must be a whole number"),
        ({"x": {}}, "here.inner.x.size is missing"),
        ({"x": 3}, "here.inner.x=3 must be a mapping, {KEY: VALUE}"),
        (["x"], "here.inner=['x'] must be a mapping, {KEY: VALUE} or null"),
    ],
)
def test_what_is_wrong_inside_a_mapping_is_named(inner: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        typed(Settings, VALUES | {"inner": inner}, "here")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("files", ["a.tsv", None])
def test_every_side_of_a_union_is_taken(files: str | None) -> None:
    assert typed(Settings, VALUES | {"files": files}, "here").files == files


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("count", 3.0, "here.count=3.0 must be a whole number"),
        ("count", True, "here.count=True must be a whole number"),
        ("count", "3", "here.count='3' must be a whole number"),
        ("count", None, "here.count=null must be a whole number"),
        ("rate", "fast", "here.rate='fast' must be a number"),
        ("rate", True, "here.rate=True must be a number"),
        ("name", 3, "here.name=3 must be a text"),
        ("flag", 1, "here.flag=1 must be true or false"),
        ("choice", "c", "here.choice='c' must be a or b"),
        ("pair", [1.0], "here.pair=[1.0] must be a list of 2"),
        ("pair", [1.0, "x"], "here.pair='x' must be a number"),
        ("pair", 1.0, "here.pair=1.0 must be a list of 2"),
        ("files", 3, "here.files=3 must be a text or a list or null"),
        ("files", ["a", 3], "here.files=['a', 3] must be a text or a list or null"),
        ("limit", "x", "here.limit='x' must be a number or null"),
        ("cuont", 3, "here.cuont is not a setting of here (did you mean count?)"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        typed(Settings, VALUES | {key: value}, "here")
    assert str(caught.value) == message


def test_a_missing_value_is_named_unless_it_has_a_default() -> None:
    missing = {key: value for key, value in VALUES.items() if key != "flag"}
    with pytest.raises(InputError, match=r"^here\.flag is missing$"):
        typed(Settings, missing, "here")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=x"], "seed='x' must be a whole number"),
        (["keep_memory=1"], "keep_memory=1 must be true or false"),
        (["data.max_length=long"], r"data\.max_length='long' must be a whole number"),
        (["optimizer.betas=[0.9]"], r"optimizer\.betas=\[0\.9\] must be a list of 2"),
        (["schedule.name=step"], r"schedule\.name='step' must be inverse_sqrt or noam or"),
        (["model.num_heads=3"], r"model\.d_model=128 is not a multiple of model\.num_heads=3"),
        (["trainer.num_nodes=two"], r"trainer\.num_nodes='two' must be a whole number"),
        (["trainer.num_nodes=0"], r"trainer\.num_nodes=0 must be at least 1"),
        (["trainer.max_time=3600"], r"trainer\.max_time=3600 must be DAYS:HOURS:MINUTES:SECONDS"),
        (["trainer.max_time=4min"], r"trainer\.max_time=4min must be .*, such as 00:12:00:00"),
        (["callbacks.ema_decay=99.9"], r"callbacks\.ema_decay=99\.9 must be at least 0 .* below 1"),
        (["callbacks.ema_decay=1"], r"callbacks\.ema_decay=1\.0 must be at least 0"),
        (["decoding.beam_size=two"], r"decoding\.beam_size='two' must be a whole number"),
    ],
)
def test_the_keys_of_a_run_are_checked(arguments: list[str], message: str) -> None:
    config = OmegaConf.to_container(compose_config("train", arguments))
    with pytest.raises(InputError, match=message):
        run_config(config)  # type: ignore[arg-type]


def test_a_program_does_not_get_into_a_checkpoint() -> None:
    config = compose_config("train", ["decoding=mbr", "decoding.utility=operator:eq"])
    with pytest.raises(InputError, match=r"decoding\.utility=operator:eq is a program"):
        run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]


def test_own_text_is_given_as_a_pair_or_as_one_file() -> None:
    arguments = ["data=files", "data.train=[a.en,a.de]", "data.test=b.tsv"]
    data = run_config(OmegaConf.to_container(compose_config("train", arguments))).data  # type: ignore[arg-type]
    assert list(data.train or ()) == ["a.en", "a.de"]
    assert data.test == "b.tsv"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": "wide"}, r"model\.d_model='wide' must be a whole number"),
        ({"d_model": 128.5}, r"model\.d_model=128\.5 must be a whole number"),
        ({"positions": "absolute"}, r"model\.positions='absolute' must be sinusoidal or learned"),
        ({"experts": 8}, r"model\.experts is not a setting of model"),
    ],
)
def test_the_keys_of_a_model_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        typed(ModelConfig, tiny_config().to_dict() | changes, "model")
