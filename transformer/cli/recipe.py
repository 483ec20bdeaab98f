"""``recipe``: a chain of trainings and translations that can be stopped and gone on with.

Its own keys are taken from conf/recipe.yaml; all others are those of train.py.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from transformer.cli.config.compose import compose_config, config_folder
from transformer.cli.exit import exit_code_of
from transformer.common.errors import InputError
from transformer.common.files import given_path

if TYPE_CHECKING:
    from transformer.recipes.arguments import Given
    from transformer.recipes.catalogue import Recipe
    from transformer.recipes.manifest import Manifest
    from transformer.recipes.plan import Plan


def main(arguments: Sequence[str]) -> int:
    """Run a recipe, or go on with it; returns the exit code."""
    return exit_code_of(lambda: _recipe(list(arguments)))


def _recipe(arguments: list[str]) -> None:
    name = _name(arguments)
    from transformer.recipes.arguments import sorted_out
    from transformer.recipes.catalogue import RECIPES

    recipe = RECIPES[name]
    groups = {file.name for file in config_folder().iterdir() if file.is_dir()} - {"recipe"}
    training = groups | set(map(str, compose_config("train", [])))
    given = sorted_out(arguments, _own_keys(name), training, recipe.kinds)
    values: Any = OmegaConf.to_container(compose_config("recipe", given.own))
    plan, checkpoint = _plan(recipe, given, values)
    _run(name, plan, values, checkpoint, shlex.join(["transformer", *arguments]))


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


def _plan(recipe: "Recipe", given: "Given", values: dict[str, Any]) -> "tuple[Plan, Path]":
    """The stages, and the checkpoint that the last one leaves."""
    from transformer.recipes.overrides import merged
    from transformer.recipes.plan import Plan

    if values["output"] in (None, ""):
        raise InputError("output= names no folder; give one")
    settings = recipe.settings(values)
    output = given_path(str(values["output"]))
    plan = Plan(output, merged(given.base), given.extras, _compose, _check)
    checkpoint = recipe.add(plan, settings)
    plan.complete()
    return plan, checkpoint


def _run(name: str, plan: "Plan", values: dict[str, Any], checkpoint: Path, called: str) -> None:
    from transformer.common.schema import typed_value
    from transformer.recipes.chain import refuse_missing, run_chain
    from transformer.recipes.digests import Digests
    from transformer.recipes.manifest import Manifest
    from transformer.recipes.processes import Processes
    from transformer.training.rendezvous import external_place

    dry = typed_value(values["dry_run"], bool, "dry_run")
    redo = typed_value(values["redo_from"], str | None, "redo_from")
    if external_place() is not None:
        raise InputError("a recipe starts its own processes; call it without torchrun or srun")
    digests = Digests(given_path(plan.data.cache), _say)
    if dry:
        if redo is not None:
            raise InputError(f"redo_from={redo} does nothing in a dry run; leave one out")
        refuse_missing(plan.stages)
        _show(plan, Manifest(plan.folder, name, digests))
        return
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output={plan.folder} cannot be made: {error.strerror}") from error
    with Processes() as call:
        manifest = run_chain(
            plan.stages, lambda: Manifest(plan.folder, name, digests, called), _say, call, redo
        )
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


def _check(
    verb: str, arguments: Sequence[str], config: Mapping[str, Any], trained: Mapping[str, Any]
) -> None:
    """Refuse what ``translate`` and ``evaluate`` would, once a model is there."""
    from transformer.cli.evaluate.evaluate import refuse_what_counts_nothing
    from transformer.cli.load import batch_tokens_of, refuse_unseen_nbest, search_of
    from transformer.cli.models import averaging_of, refuse_no_device
    from transformer.common.schema import typed_value
    from transformer.model.layers.quantization import Precision

    try:
        search = search_of(arguments, config["decoding"], trained)
        if config.get("format") != "json":
            refuse_unseen_nbest(arguments, search, "leave it out")
        batch_tokens_of(OmegaConf.create({"batch_tokens": config["batch_tokens"]}))
        typed_value(config["precision"], Precision, "precision")
        refuse_no_device(config["device"])
        said, several = OmegaConf.create(dict(config)), isinstance(config["checkpoint"], list)
        averaging_of(said, len(config["checkpoint"]) if several else 1)
        if verb == "evaluate":
            refuse_what_counts_nothing(said)
    except InputError as error:
        raise InputError(f"{verb}: {error}") from error
