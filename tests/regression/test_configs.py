"""Every YAML under conf/ is composed, and becomes typed values."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from scripts.conf import COMMANDS, defaults, flat, rewritten, shown_defaults
from transformer.cli.arguments import config_folder
from transformer.cli.config import command_settings, compose_config, run_settings
from transformer.cli.recipe import RECIPES
from transformer.settings.model import ModelConfig

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
    run.model.sized(9, 9)
    assert run.trainer.precision == config.precision


UNSHOWN = {
    "train": {
        *("model.source_vocab_size", "model.target_vocab_size", "model.pad"),
        *("trainer.limit_val_batches", "logger.wandb"),
        # Of optimizer=muon alone.
        *("optimizer.momentum", "optimizer.bfloat16"),
    },
    # A group that conf/ leaves out by default.
    "doctor": {"tokenizer"},
    "clean": {"tokenizer"},
}
"""Fields without a line in the YAML of a command and of its default choices."""


def test_every_command_has_a_dataclass() -> None:
    assert {file.stem for file in ROOT.glob("*.yaml")} - {*COMMANDS} == {"recipe"}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_yaml_of_a_command_shows_the_defaults_of_its_dataclass(command: str) -> None:
    text = (ROOT / f"{command}.yaml").read_text(encoding="utf-8")
    required = re.findall(r"^(\w+): \?\?\?$", text, re.MULTILINE)
    required += ["reference"] if command == "select" else []  # or the keys of a model
    odd = {"runs": "[a,b]", "server": "http://x/translate"}
    needed = [f"{key}={odd.get(key, 'x')}" for key in required]
    config = compose_config(command, ["~experiment"] if command == "train" else needed)
    train = command == "train"
    settings = run_settings(config) if train else command_settings(command, config, [])
    kind = COMMANDS[command]
    assert settings == kind(**{key: getattr(settings, key) for key in required})
    unshown = dict(flat(defaults(kind))).keys() - dict(flat(OmegaConf.to_container(config))).keys()
    assert unshown == UNSHOWN.get(command, set())


def test_conf_shows_what_would_be_written() -> None:
    for file, values in shown_defaults():
        text = file.read_text(encoding="utf-8")
        assert rewritten(text, values) == text, f"{file}: run python -m scripts.conf"


def test_the_smallest_preset_shows_the_defaults_of_a_model() -> None:
    shown = OmegaConf.to_container(OmegaConf.load(ROOT / "model" / "tiny.yaml"))
    assert isinstance(shown, dict)
    assert {key: getattr(ModelConfig(), key) for key in shown} | {"freeze": []} == shown


def test_every_recipe_has_a_config() -> None:
    for name, recipe in RECIPES.items():
        given = ["output=x", "monolingual=x"] if name == "backtranslate" else ["output=x"]
        config = compose_config("recipe", [f"recipe={name}", *given])
        assert set(config) - set(compose_config("recipe", ["output=x"])) == {
            field.name for field in fields(recipe)
        }
    assert {file.stem for file in ROOT.glob("recipe/*.yaml")} == set(RECIPES)


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
