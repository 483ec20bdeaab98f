"""``recipe``: a chain of training runs and translations that can be stopped and resumed."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from omegaconf import OmegaConf

from transformer.cli.arguments import config_folder
from transformer.cli.config import command_settings, compose_config, run_settings
from transformer.cli.translate import check_translate
from transformer.commands.scored_text import changed_metrics
from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path
from transformer.common.schema import typed, typed_value
from transformer.evaluation.metrics import build_metric
from transformer.recipes import runner
from transformer.recipes.backtranslate import Backtranslate
from transformer.recipes.distill import Distill
from transformer.recipes.overrides import sort_arguments
from transformer.recipes.plan import Plan, Recipe
from transformer.settings.decoding import changed_search
from transformer.settings.run import RunConfig

RECIPES: dict[str, type[Recipe]] = {"distill": Distill, "backtranslate": Backtranslate}


def run_recipe(arguments: Sequence[str]) -> None:
    """Run or resume a recipe; with ``dry_run`` only print its commands."""
    names = [text.removeprefix("recipe=") for text in arguments if text.startswith("recipe=")]
    name = names[-1] if names else ""
    recipe = RECIPES.get(name)
    if recipe is None:
        raise InputError(
            f"recipe={name} names no recipe; choose recipe={' or recipe='.join(RECIPES)}"
        )
    # Names of config groups, such as ``model``, and the keys of train.yaml.
    groups = {file.name for file in config_folder().iterdir() if file.is_dir()}
    training = {*groups, *map(str, compose_config("train", []))}
    keys = {"recipe", "output", "dry_run", *get_type_hints(recipe)}
    recipe_arguments, base, extras = sort_arguments(arguments, keys, training, recipe.kinds)
    values: Any = OmegaConf.to_container(compose_config("recipe", recipe_arguments))
    output = values.pop("output")
    dry_run = values.pop("dry_run")
    chosen = typed(recipe, values, "")
    if output in (None, ""):
        raise InputError("output= names no folder; give one")
    plan = plan_recipe(chosen, typed_value(output, Path, "output"), base, extras)
    if typed_value(dry_run, bool, "dry_run"):
        _show(plan)
        return
    result = runner.run_recipe(plan, partial(print, "recipe:", file=sys.stderr, flush=True))
    report = {"checkpoint": str(result.checkpoint), "scores": result.scores}
    print(json.dumps(report, indent=1, ensure_ascii=False))


def plan_recipe(
    recipe: Recipe,
    folder: Path,
    training: Sequence[str] = (),
    stages: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Plan:
    """The stages of a recipe, each a checked command, which `run_recipe` runs in a folder.

    Args:
        recipe: Such as ``Distill(teachers=2)``.
        folder: Of all files that the stages write.
        training: ``KEY=VALUE`` arguments of all training runs, such as ``experiment=pocket``.
        stages: ``KEY=VALUE`` arguments of the stages of a kind, such as
            ``{"student": ["model=tiny"]}``.

    Raises InputError if a stage would be refused, or a model has another direction.
    """
    plan = Plan(folder, training, stages, _compose)
    recipe.add(plan)
    plan.complete()
    return plan


def _compose(verb: str, arguments: Sequence[str], run: RunConfig | None) -> Any:
    """The config of a command; its arguments are checked with the run of its model."""
    with nullcontext() if verb == "train" else errors_name(verb):
        config = compose_config(verb, arguments)
        if verb == "train":
            training = run_settings(config)
            training.metrics.bleu()  # whose package may be missing
            return training
        settings = command_settings(verb, config, arguments)
        if run is not None:
            changed_search(run.decoding, settings.decoding)
        if verb == "translate":
            check_translate(settings, arguments)
        if verb == "evaluate":
            metrics = changed_metrics(settings, run, settings.checkpoint)
            metrics.bleu()
            for name in settings.scores or ():
                build_metric(name, metrics)
        return settings


def _show(plan: Plan) -> None:
    # All states first: a missing input raises InputError before anything is printed.
    plan_states = list(runner.states(plan.stages, given_path(plan.data.cache)))
    for stage, state in zip(plan.stages, plan_states, strict=True):
        print(f"# {stage.name} ({state})")
        if stage.verb == "translate":
            # translate writes a file, but does not create its folder.
            print(f"mkdir -p {shlex.quote(str(stage.folder))}")
        print(stage.command)
