"""The recipes that there are, and their keys."""


def test_no_key_of_a_recipe_is_one_of_a_training() -> None:
    from transformer.cli.config.compose import compose_config, config_folder
    from transformer.cli.recipe import _own_keys
    from transformer.recipes.catalogue import RECIPES as KNOWN

    training = set(compose_config("train", [])) | {
        file.name for file in config_folder().iterdir() if file.is_dir() and file.name != "recipe"
    }
    assert set(KNOWN) == {"distill", "backtranslate", "bidirectional"}
    for name, recipe in KNOWN.items():
        assert not _own_keys(name) & training
        assert not set(recipe.kinds) & training
