"""A call of a verb to its composed config, with errors that help.

It does not know what the keys mean.
"""

from argparse import ArgumentError
from collections.abc import Sequence
from functools import cache
from os.path import exists
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from transformer.cli.config.hydra_errors import explained, override_key, unknown_choice, unknown_key
from transformer.common.errors import ALSO, InputError
from transformer.common.files import PACKAGE, given_path

SWEEPS = (",", "(")
"""What stands in a value that Hydra sweeps over."""


def config_folder() -> Path:
    """``conf/`` as a wheel carries it, or as the checkout has it."""
    inside = PACKAGE / "conf"
    return inside if inside.is_dir() else PACKAGE.parent / "conf"


def compose_config(verb: str, overrides: Sequence[str]) -> DictConfig:
    """Compose ``conf/VERB.yaml`` with the user's ``KEY=VALUE`` arguments.

    Raises:
        InputError: An argument is no ``KEY=VALUE``, a key is unknown (the nearest known one is
            named) or has no value yet, or a choice does not exist.
    """
    check_no_flags(overrides)
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise InputError(
                f"{override!r} is not of the form KEY=VALUE{_if_a_run(verb, override)}"
            )
        if override.startswith("+"):
            raise InputError(f"{override!r} adds a key that nothing reads; drop the +")
    check_single_choices(verb, overrides)
    if verb == "train":
        overrides = with_recipe(overrides)
    try:
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            config = compose(verb, list(overrides))
            OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise refusal(verb, overrides, error) from error
    check_known_choices(verb, overrides)
    if isinstance(config.get("checkpoint"), ListConfig) and "averaging" not in config:
        raise InputError(f"{verb} takes one checkpoint, not the several of an ensemble")
    if missing := sorted(OmegaConf.missing_keys(config)):
        are, each = ("is", "it") if len(missing) == 1 else ("are", "each")
        keys = " and ".join(f"{key}=" for key in missing)
        raise InputError(f"{keys} {are} missing; {verb} needs a value for {each}")
    return config


def _if_a_run(verb: str, argument: str) -> str:
    """Which key is meant by a path that stands alone."""
    takes_one = "checkpoint" in set(OmegaConf.load(config_folder() / f"{verb}.yaml"))
    return f"; a run is given as checkpoint={argument}" if takes_one and exists(argument) else ""


def refusal(verb: str, overrides: Sequence[str], error: Exception) -> InputError:
    """What to tell the user of an error of Hydra's while it composes: all unknown keys at once."""
    left = list(overrides)
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose(verb)
        reason = explained(error, left, config)
        while (key := unknown_key(error, left, config)) is not None:
            left = [override for override in left if override_key(override) != key]
            try:
                compose(verb, left)
                break
            except (HydraException, OmegaConfBaseException) as more:
                error = more
            if unknown_key(error, left, config) is not None:
                reason += f"{ALSO}{explained(error, left, config)}"
    return InputError(reason)


def resolve_path(config: DictConfig, key: str) -> Path:
    """The path that a key holds; a name such as 2014 is a number to Hydra.

    Raises:
        InputError: It is in the home folder of a user who is not there.
    """
    return given_path(str(config[key]))


def with_recipe(overrides: Sequence[str]) -> list[str]:
    """The arguments of ``train``, and the experiment that is named as the corpus in them, if any.

    Hydra would find it by itself, but would not let it choose from other groups then.

    Raises:
        InputError: Several corpora are named, to sweep over, and no experiment.
    """
    given = dict(override.removeprefix("~").partition("=")[::2] for override in overrides)
    recipe = given.get("data", "")
    if "experiment" in given:
        return list(overrides)
    if any(sign in recipe for sign in SWEEPS):
        raise InputError(
            f"data={recipe} cannot take the recipe of each corpus; sweep over the recipes, "
            f"--multirun experiment={recipe}, or name one experiment for all"
        )
    if not (config_folder() / "experiment" / f"{recipe}.yaml").is_file():
        return list(overrides)
    return [*overrides, f"experiment={recipe}"]


def check_single_choices(verb: str, overrides: Sequence[str]) -> None:
    """Refuse what Hydra would lay one over the other: a list for a group that is one thing.

    Raises:
        InputError: There is one.
    """
    for override in overrides:
        group, _, choice = override.partition("=")
        one_thing = (config_folder() / group).is_dir() and group not in _optional_groups(verb)
        if one_thing and choice.startswith("["):
            raise InputError(f"{group}={choice} is a list; choose one, {group}=NAME")


def check_known_choices(verb: str, overrides: Sequence[str]) -> None:
    """Refuse what Hydra passes over: a choice that an optional group of ``conf/VERB.yaml`` lacks.

    Raises:
        InputError: There is one.
    """
    for override in overrides:
        group, _, choice = override.partition("=")
        if group not in _optional_groups(verb) or "(" in choice:
            continue
        choices = sorted(file.stem for file in (config_folder() / group).glob("*.yaml"))
        for name in choice.strip("[]").split(","):
            if (bare := name.strip(" '\"")) not in choices:
                raise InputError(unknown_choice(group, bare, choices))


def flags_and_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags of Hydra with their values, and the rest, wherever they stand among each other.

    Raises:
        InputError: A flag is unknown, or has no value or a wrong one.
    """
    parser = get_args_parser()
    parser.allow_abbrev = parser.exit_on_error = False
    try:
        parsed, unknown = parser.parse_known_intermixed_args(list(arguments))
    except ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}") from error
    check_no_flags(unknown)
    overrides = parsed.overrides or []
    return [argument for argument in arguments if argument not in overrides], overrides


def check_no_flags(arguments: Sequence[str]) -> None:
    """Refuse ``--data``.

    Raises:
        InputError: Something starts with a dash.
    """
    for argument in arguments:
        if argument.startswith("-"):
            raise InputError(
                f"{argument!r} is not of the form KEY=VALUE; keys have no dashes before them"
            )


@cache
def _optional_groups(verb: str) -> frozenset[str]:
    """Those that ``conf/VERB.yaml`` marks so in its defaults list."""
    file: Any = OmegaConf.to_container(OmegaConf.load(config_folder() / f"{verb}.yaml"))
    keys = [key for entry in file.get("defaults", []) if isinstance(entry, dict) for key in entry]
    return frozenset(key.removeprefix("optional ") for key in keys if key.startswith("optional "))
