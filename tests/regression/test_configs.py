"""Every YAML under conf/ is composed, and becomes typed values."""

import json
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from omegaconf import OmegaConf

from transformer.cli.config.arguments import config_folder
from transformer.cli.config.compose import compose_config, run_settings
from transformer.cli.config.settings import SETTINGS, command_settings
from transformer.cli.recipe import RECIPES
from transformer.common.schema import typed
from transformer.runs.tuning import SweepConfig
from transformer.settings.clean import Filters
from transformer.settings.doctor import CHECKS
from transformer.settings.logger import WandbConfig
from transformer.settings.run import RunConfig, plain_values
from transformer.settings.serve import ServerConfig

ROOT = config_folder()
CHOICES = sorted(
    (file.parent.name, file.stem)
    for file in ROOT.glob("*/*.yaml")
    if (file.parent.name, file.stem) != ("data", "base") and file.parent.name != "recipe"
)


FREE = ("augmentation", "decoding", "logger", "loss", "metrics", "model", "optimizer", "schedule")
FREE += ("tokenizer", "trainer")
"""Groups whose choices do not depend on each other: a run takes one of each."""


def _calls() -> Iterator[list[str]]:
    """Every choice in one call or more."""
    of_group = {group: [name for one, name in CHOICES if one == group] for group, _ in CHOICES}
    for number in range(max(len(of_group[group]) for group in FREE)):
        yield [f"{group}={of_group[group][number % len(of_group[group])]}" for group in FREE]
    for group in of_group.keys() - {*FREE}:
        yield from ([f"{group}={name}"] for name in of_group[group])


@pytest.mark.thorough
@pytest.mark.parametrize("choices", sorted(_calls()), ids=" ".join)
def test_every_choice_of_every_group_makes_a_run(choices: list[str]) -> None:
    needs_file = {"tokenizer=sentencepiece", "tokenizer=huggingface"} & {*choices}
    config = compose_config("train", [*choices, *(["tokenizer.file=x"] if needs_file else [])])
    run = run_settings(config)
    assert run.trainer.precision == config.precision


PYTHON_ONLY = {
    *("trainer.limit_val_batches", "logger.wandb", "tune.scoring"),
}
"""Fields without a line in the YAML of the default choices."""


def _compared(yaml: Any, defaults: Any, where: str) -> Iterator[str]:
    """Yield the keys in which a mapping of the YAML and the defaults of a dataclass differ."""
    if isinstance(yaml, dict) and isinstance(defaults, dict):
        for key in yaml.keys() | defaults.keys():
            name = f"{where}.{key}".removeprefix(".")
            if name not in PYTHON_ONLY:
                yield from _compared(yaml.get(key, KeyError), defaults.get(key, KeyError), name)
    elif (yaml, type(yaml)) != (defaults, type(defaults)):
        yield f"{where}: {yaml!r} in the YAML, {defaults!r} in the dataclass"


def _fields(verb: str, config: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a dataclass that are keys of a verb, and their defaults, as plain values."""
    values: Any = OmegaConf.to_container(compose_config(verb, ["checkpoint=x"]))
    defaults = json.loads(json.dumps(asdict(config), default=str))  # type: ignore[call-overload]
    return {key: value for key, value in values.items() if key in defaults}, defaults


def test_the_yaml_shows_the_defaults_of_the_dataclasses() -> None:
    plain: Any = OmegaConf.to_container(compose_config("train", ["~experiment"]))
    assert plain.pop("precision") == plain["trainer"]["precision"]  # short for this
    assert [*_compared(plain, plain_values(RunConfig()), "")] == []
    assert [*_compared(*_fields("serve", ServerConfig()), "serve")] == []
    tune, searches = _fields("tune", SweepConfig())
    assert tune["batch_tokens"] is None  # what the device asks for
    assert [*_compared(tune | {"batch_tokens": searches["batch_tokens"]}, searches, "tune")] == []
    logged: Any = OmegaConf.load(ROOT / "logger" / "wandb.yaml")["wandb"]
    assert [*_compared(OmegaConf.to_container(logged), asdict(WandbConfig()), "wandb")] == []


@pytest.mark.parametrize("verb", SETTINGS)
def test_the_yaml_of_a_command_shows_the_defaults_of_its_dataclass(verb: str) -> None:
    kind = resolve_name(f"transformer.settings.{SETTINGS[verb]}")
    needed = {
        field.name: "http://x/translate" if field.name == "server" else "x"
        for field in fields(kind)
        if field.default is field.default_factory is MISSING
    }
    config = compose_config(verb, [f"{key}={value}" for key, value in needed.items()])
    assert command_settings(verb, config, []) == typed(kind, needed, "")


def test_the_yaml_of_a_recipe_shows_its_defaults() -> None:
    for name, recipe in RECIPES.items():
        values: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "recipe" / f"{name}.yaml"))
        required = {"monolingual": "???"} if name == "backtranslate" else {}
        defaults = {f.name: f.default for f in fields(recipe) if f.default is not MISSING}
        assert [*_compared(values, defaults | required, name)] == []


@pytest.mark.parametrize(
    "verb",
    [
        "evaluate",
        "translate",
        "predict",
        "score",
        "shortlist",
        "export",
        "average",
        "consolidate",
        "attention",
        "heads",
        "tune",
    ],
)
def test_every_verb_has_a_config(verb: str) -> None:
    needed = {
        "attention": ["text=x"],
        "consolidate": ["output=x"],
        "score": ["source=x", "target=x"],
    }
    given = ["checkpoint=x", *needed.get(verb, [])]
    assert compose_config(verb, given).checkpoint == "x"
    assert compose_config("compare", ["runs=[a,b]"]).runs == ["a", "b"]


def test_every_recipe_has_a_config() -> None:
    for name, recipe in RECIPES.items():
        given = ["output=x", "monolingual=x"] if name == "backtranslate" else ["output=x"]
        config = compose_config("recipe", [f"recipe={name}", *given])
        assert set(config) - set(compose_config("recipe", ["output=x"])) == {
            field.name for field in fields(recipe)
        }
    assert {file.stem for file in ROOT.glob("recipe/*.yaml")} == set(RECIPES)


def test_doctor_and_clean_know_all_checks() -> None:
    # A text may well have several translations.
    filters = {field.name for field in fields(Filters)}
    assert filters == {*CHECKS} - {"several_targets", "several_sources"}
    for group in ("data", "tokenizer"):
        for file in Path(ROOT, group).glob("*.yaml"):
            if file.stem != "base":
                assert group in compose_config("doctor", [f"{group}={file.stem}"])


def test_an_experiment_introduces_no_key() -> None:
    def keys(node: object, prefix: str = "") -> set[str]:
        if not isinstance(node, dict):
            return set()
        names = {f"{prefix}{name}" for name in node}
        return names.union(*(keys(value, f"{prefix}{name}.") for name, value in node.items()))

    known = keys(OmegaConf.to_container(compose_config("train", [])))
    for file in Path(ROOT, "experiment").glob("*.yaml"):
        config = compose_config("train", [f"experiment={file.stem}"])
        assert keys(OmegaConf.to_container(config)) - {"schedule.total", "schedule.floor"} <= known


@pytest.mark.parametrize("name", [name for group, name in CHOICES if group == "experiment"])
def test_the_head_of_an_experiment_says_how_to_run_it(name: str) -> None:
    head = Path(ROOT, "experiment", f"{name}.yaml").read_text().split("\n\n")[0]
    comments = [line for line in head.splitlines() if line.startswith("#")]
    assert comments[0] == "# @package _global_"
    assert any(line.startswith(f"#   python train.py experiment={name}") for line in comments)


def test_a_preset_holds_only_what_differs() -> None:
    tiny = OmegaConf.load(ROOT / "model" / "tiny.yaml")
    for preset in ("small", "base", "big"):
        changed = OmegaConf.load(ROOT / "model" / f"{preset}.yaml")
        assert "defaults" in changed
        assert set(changed) - {"defaults"} < set(tiny)
