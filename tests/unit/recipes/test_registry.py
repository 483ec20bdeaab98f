"""The recipes that there are, and their keys."""

from dataclasses import fields

from transformer.cli.config.arguments import config_folder
from transformer.cli.config.compose import compose_config
from transformer.recipes.registry import RECIPES


def test_no_key_of_a_recipe_is_one_of_a_training() -> None:
    groups = {file.name for file in config_folder().iterdir() if file.is_dir()}
    training = (set(compose_config("train", [])) | groups) - {"recipe"}
    assert set(RECIPES) == {"distill", "backtranslate", "bidirectional"}
    for recipe in RECIPES.values():
        keys = {"output", "dry_run", *(field.name for field in fields(recipe))}
        assert not (keys | set(recipe.kinds)) & training
