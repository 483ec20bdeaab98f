"""``recipe``: a chain of trainings and translations that can be stopped and gone on with.

Its own keys are taken from conf/recipe.yaml; all others are those of train.py.
"""

import difflib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import OmegaConf

from transformer.cli.compose import compose_config, config_folder
from transformer.cli.exit import exit_code_of
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.recipes.catalogue import Recipe
    from transformer.recipes.manifest import Manifest
    from transformer.recipes.plan import Plan


def main(arguments: Sequence[str]) -> int:
    """Run a recipe, or go on with it; returns the exit code."""
    return exit_code_of(lambda: _recipe(list(arguments)))


class Given(NamedTuple):
    """The arguments of a call, sorted out."""

    own: list[str]
    """Of the recipe itself."""
    base: list[str]
    """Of all trainings."""
    extras: dict[str, tuple[str, ...]]
    """Of the stages of one kind."""


def _recipe(arguments: list[str]) -> None:
    name = _name(arguments)
    from transformer.recipes.catalogue import RECIPES

    recipe = RECIPES[name]
    given = _sorted_out(arguments, _own_keys(name), recipe.kinds)
    values: Any = OmegaConf.to_container(compose_config("recipe", given.own))
    plan, checkpoint = _plan(recipe, given, values)
    _run(name, plan, values, checkpoint)


def _name(arguments: Sequence[str]) -> str:
    """The recipe that is named.

    Raises:
        InputError: None is, or one that is not there.
    """
    known = sorted(file.stem for file in (config_folder() / "recipe").glob("*.yaml"))
    names = [
        value for key, _, value in (one.partition("=") for one in arguments) if key == "recipe"
    ]
    if not names:
        raise InputError(f"recipe= is missing; choose {' or '.join(known)}")
    if names[-1] not in known:
        raise InputError(f"recipe={names[-1]} is unknown; choose {' or '.join(known)}")
    return names[-1]


def _own_keys(name: str) -> set[str]:
    """The keys that a recipe does not hand on."""
    files = ("recipe.yaml", f"recipe/{name}.yaml")
    keys = {str(key) for file in files for key in OmegaConf.load(config_folder() / file)}
    return keys - {"defaults"} | {"recipe"}


def _sorted_out(arguments: Sequence[str], own: set[str], kinds: Sequence[str]) -> Given:
    """Tell the arguments of the recipe from those of the trainings, and of stages of one kind.

    Raises:
        InputError: One is of none of these.
    """
    groups = {file.name for file in config_folder().iterdir() if file.is_dir()} - {"recipe"}
    known = own | groups | set(map(str, compose_config("train", [])))
    given = Given([], [], dict.fromkeys(kinds, ()))
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        head, dot, _ = key.partition(".")
        if not equals:
            raise InputError(f"{argument!r} is not of the form KEY=VALUE")
        if key in own:
            given.own.append(argument)
        elif dot and head in kinds:
            given.extras[head] += (argument.removeprefix(f"{head}."),)
        elif head in known - own or key.startswith(("hydra.", "+", "~")):
            given.base.append(argument)
        else:
            near = difflib.get_close_matches(head, sorted({*known, *kinds}), n=1, cutoff=0.5)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise InputError(f"unknown key {key}{meant}")
    return given


def _plan(recipe: "Recipe", given: Given, values: dict[str, Any]) -> "tuple[Plan, Path]":
    """The stages, and the checkpoint that the last one leaves."""
    from transformer.recipes.overrides import merged
    from transformer.recipes.plan import Plan

    settings = recipe.settings(values)
    plan = Plan(Path(str(values["output"])), merged(given.base), given.extras, _compose)
    return plan, recipe.add(plan, settings)


def _run(name: str, plan: "Plan", values: dict[str, Any], checkpoint: Path) -> None:
    from transformer.recipes.chain import Processes, refuse_missing, run_chain
    from transformer.recipes.manifest import Manifest
    from transformer.training.rendezvous import external_place
    from transformer.training.typed import typed_value

    dry = typed_value(values["dry_run"], bool, "dry_run")
    redo = typed_value(values["redo_from"], str | None, "redo_from")
    if external_place() is not None:
        raise InputError("a recipe starts its own processes; call it without torchrun or srun")
    manifest = Manifest(plan.folder, name)
    if dry:
        if redo is not None:
            raise InputError(f"redo_from={redo} does nothing in a dry run; leave one out")
        refuse_missing(plan.stages)
        _show(plan, manifest)
        return
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output={plan.folder} cannot be made: {error.strerror}") from error
    run_chain(plan.stages, manifest, _say, Processes(), redo)
    print(json.dumps(_report(manifest, checkpoint), indent=1, ensure_ascii=False))


def _report(manifest: "Manifest", checkpoint: Path) -> dict[str, Any]:
    """What came of it: the last model, and what its training and its evaluation say of it."""
    *_, training, evaluation = manifest.stages
    return {
        "manifest": str(manifest.file),
        "checkpoint": str(checkpoint),
        "scores": evaluation["scores"] | training["scores"],
    }


def _show(plan: "Plan", manifest: "Manifest") -> None:
    """Print what would be done, as a script."""
    done = manifest.check(plan.stages)
    for number, stage in enumerate(plan.stages):
        state = "done" if number < done else "goes on" if number < len(manifest.stages) else "new"
        print(f"# {stage.name} ({state})")
        if stage.verb == "translate":
            # It makes a file, and no folder.
            print(f"mkdir -p {shlex.quote(str(stage.folder))}")
        print(stage.command)


def _say(line: str) -> None:
    print(f"recipe: {line}", file=sys.stderr, flush=True)


def _compose(verb: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The config of a verb; what is wrong is said with the verb that it is of."""
    try:
        values: Any = OmegaConf.to_container(compose_config(verb, arguments))
    except InputError as error:
        raise InputError(f"{verb}: {error}" if verb != "train" else str(error)) from error
    return values
