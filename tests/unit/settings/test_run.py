"""Plain values become typed ones, or an error that names the key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.helpers.checks import no_checks
from tests.helpers.training.updates import loss_config, recovery_config
from transformer.cli.config import compose_config, run_settings
from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.settings.corpora import TextConfig
from transformer.settings.data import CorpusConfig, DataConfig
from transformer.settings.evaluation import CompareConfig, EvaluateConfig, StressConfig
from transformer.settings.run import RunConfig, dotted_values
from transformer.settings.training import OptimizerConfig, ScheduleConfig, TrainerConfig
from transformer.tasks.registry import task_class


def adam(**changes: Any) -> OptimizerConfig:
    return typed(OptimizerConfig, changes, "optimizer")


def cosine(**changes: Any) -> ScheduleConfig:
    return typed(ScheduleConfig, changes, "schedule")


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
    inner = {"x": {"size": 1, "names": ["a"]}, 2: {"size": 2}}
    settings = typed(Settings, VALUES | {"rate": 1, "limit": 2, "inner": inner}, "here")
    typed_inner = {"x": Inner(1, ("a",)), "2": Inner(2)}
    assert settings == Settings(
        3, 1.0, "x", True, "b", (0.9, 1.0), ("a.en", "a.de"), 2.0, typed_inner
    )
    for value in (settings.rate, settings.limit, *settings.pair):
        assert type(value) is float
    for files in ("a.tsv", None):
        assert typed(Settings, VALUES | {"files": files}, "here").files == files


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("count", 3.0, "here.count=3.0 must be a whole number"),
        ("count", True, "here.count=True must be a whole number"),
        ("count", None, "here.count=null must be a whole number"),
        ("rate", "fast", "here.rate='fast' must be a number"),
        ("flag", 1, "here.flag=1 must be true or false"),
        ("flag", MISSING, "here.flag is missing"),
        ("choice", "c", "here.choice='c' must be a or b"),
        ("pair", [1.0], "here.pair=[1.0] must be a list of 2"),
        ("files", ["a", 3], "here.files=['a', 3] must be a text or a list or null"),
        ("limit", "x", "here.limit='x' must be a number or null"),
        ("cuont", 3, "here.cuont is not a setting of here (did you mean count?)"),
        (
            "inner",
            {"x": {"szie": 1}},
            "here.inner.x.szie is not a setting of here.inner.x (did you mean size?)",
        ),
        ("inner", {"x": {}}, "here.inner.x.size is missing"),
        ("inner", {"x": 3}, "here.inner.x=3 must be a mapping, {KEY: VALUE}"),
        ("inner", ["x"], "here.inner=['x'] must be a mapping, {KEY: VALUE} or null"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, message: str) -> None:
    values = {k: v for k, v in (VALUES | {key: value}).items() if v is not MISSING}
    with pytest.raises(InputError) as caught:
        typed(Settings, values, "here")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=x"], "seed='x' must be a whole number"),
        (["optimizer.betas=[0.9]"], r"optimizer\.betas=\[0\.9\] must be a list of 2"),
        (["schedule.name=step"], r"schedule\.name='step' must be inverse_sqrt or noam or"),
        (["model.num_heads=3"], r"model\.d_model=128 is not a multiple of model\.num_heads=3"),
        (["trainer.num_nodes=0"], r"trainer\.num_nodes=0 must be at least 1"),
        (["trainer.max_time=3600"], r"trainer\.max_time=3600 must be DAYS:HOURS:MINUTES:SECONDS"),
        (["trainer.max_steps=-1"], r"schedule\.total=-1: a cosine needs its last update; set"),
        (
            ["trainer.compile=layers", "model.decoder_pattern=sliding"],
            r"cannot compile model\.attention=auto here, .* set model\.attention=sdpa or",
        ),
        (
            ["trainer=fsdp", "callbacks.ema_decay=0.9"],
            r"set callbacks\.ema_decay=0 model\.layer_drop=0",
        ),
        (
            ["trainer=fsdp", "model.layer_drop=0.1"],
            r"set callbacks\.ema_decay=0 model\.layer_drop=0",
        ),
        (["decoding=mbr", "decoding.utility=operator:eq"], r"utility=operator:eq is a program"),
        (["model.positions=absolute"], r"model\.positions='absolute' must be sinusoidal or"),
    ],
)
def test_the_keys_of_a_run_are_checked(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_settings(compose_config("train", arguments))


def test_a_cosine_ends_with_the_run_that_it_is_for() -> None:
    short = RunConfig(schedule=ScheduleConfig("cosine"), trainer=TrainerConfig(max_steps=7))
    longer = replace(short, trainer=TrainerConfig(max_steps=9))
    chosen = replace(longer, schedule=ScheduleConfig("cosine", total=8))
    for config, total in ((short, 7), (longer, 9), (chosen, 8)):
        assert config.schedule_to_the_end == ScheduleConfig("cosine", total=total)
    with pytest.raises(InputError, match=r"schedule\.total=-1: a cosine needs its last update"):
        replace(short, trainer=TrainerConfig(max_steps=-1))


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (ScheduleConfig, {"warmup": -1}, r"schedule\.warmup=-1 must be at least 0"),
        (RunConfig, {"optimizer": {"lr": -1.0}}, r"optimizer\.lr=-1\.0 must be above 0"),
        (EvaluateConfig, {"checkpoint": "RUN", "batch_tokens": 0}, r"^batch_tokens=0 must be at"),
        (
            StressConfig,
            {"checkpoint": "RUN", "sentences": "all"},
            r"sentences='all' must be a whole",
        ),
        (TextConfig, {"output": "x", "splits": 5}, r"splits=5 must be a list or null"),
    ],
)
def test_a_config_of_a_program_is_checked(kind: type, values: dict[str, Any], message: str) -> None:
    with no_checks(), pytest.raises(InputError, match=message):
        kind(**values)


def test_a_program_gives_paths_and_lists_as_it_has_them() -> None:
    config: Any = {"checkpoint": Path("RUN"), "reference": ["a", Path("b")], "output": "~/x"}
    systems: Any = ["hf://USER/MODEL", Path("RUN")]
    with no_checks():
        evaluated, compared = EvaluateConfig(**config), CompareConfig(runs=systems)
    assert evaluated.checkpoints == ("RUN",)
    assert evaluated.reference == (Path("a"), Path("b"))
    assert evaluated.output == Path.home() / "x"
    assert compared.runs == ("hf://USER/MODEL", "RUN")


def test_keys_reach_no_corpus_with_a_dot_in_its_name() -> None:
    corpora = {"news": CorpusConfig(), "news.2019": CorpusConfig()}
    values = dotted_values(RunConfig(data=DataConfig(corpora=corpora)))
    assert "data.corpora.news.tag" in values
    assert not any(key.startswith("data.corpora.news.2019") for key in values)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(InputError, match=r"task=nix must be translation or .*, or MODULE:CLASS"):
        task_class("nix")


R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}


@pytest.mark.parametrize(
    ("make", "fields", "message"),
    [
        (adam, {"lr": 0.0}, r"optimizer\.lr=0\.0 must be above 0"),
        (adam, {"betas": (0.9, 1.0)}, r"betas=\[0\.9, 1\.0\] must be from 0 and below 1"),
        (cosine, {"name": "constant", "warmup": -1}, r"schedule\.warmup=-1 must be at least 0"),
        (cosine, {"floor": 1.5}, r"schedule\.floor=1\.5 must be from 0 to 1"),
        (recovery_config, {"explosion": 0.0}, r"recovery\.explosion="),
        (recovery_config, {"skips": 0}, r"recovery\.skips="),
        (recovery_config, {"lr_factor": 1.5}, r"recovery\.lr_factor="),
        (loss_config, {"label_smoothing": 1.0}, r"loss\.label_smoothing=1\.0 must be at least 0"),
        (loss_config, {"chunk": 0, "bfloat16": True}, r"needs the fused form; set loss\.chunk=512"),
        (loss_config, R_DROP | {"consistency_weight": 0.0}, r"needs loss\.consistency_weight"),
        (loss_config, R_DROP | {"alignment_weight": 0.1}, r"alignment_weight=0\.1 guides one pass"),
    ],
)
def test_numbers_out_of_range_are_refused(
    make: Callable[..., object], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(**fields)


def test_own_text_is_given_as_a_pair_or_as_one_file() -> None:
    arguments = ["data=files", "data.train=[a.en,a.de]", "data.test=b.tsv"]
    data = run_settings(compose_config("train", arguments)).data
    assert list(data.train or ()) == ["a.en", "a.de"]
    assert data.test == "b.tsv"
