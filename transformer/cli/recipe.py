"""``recipe``: a chain of training runs and translations that can be stopped and resumed."""

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, get_type_hints

from omegaconf import OmegaConf

from transformer.cli.config import compose
from transformer.cli.config.arguments import config_folder
from transformer.cli.config.settings import command_settings, search_changes
from transformer.cli.evaluate.scored_text import resolve_metrics
from transformer.cli.translate import translate
from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path
from transformer.evaluation.metrics import build_metric
from transformer.recipes.backtranslate import Backtranslate
from transformer.recipes.distill import Distill
from transformer.recipes.overrides import sort_arguments
from transformer.recipes.plan import Plan, Recipe
from transformer.recipes.runner import run_stages, states
from transformer.report.scores import read_scores
from transformer.settings.decoding import changed_search
from transformer.settings.run import RunConfig

RECIPES: dict[str, type[Recipe]] = {"distill": Distill, "backtranslate": Backtranslate}


def run(arguments: Sequence[str]) -> None:
    """Run or resume a recipe; with ``dry_run`` only print its commands."""
    choice = next((one for one in reversed(arguments) if one.startswith("recipe=")), "recipe=")
    recipe = RECIPES.get(choice.removeprefix("recipe="))
    if recipe is None:
        raise InputError(f"{choice} names no recipe; choose recipe={' or recipe='.join(RECIPES)}")
    # Names of config groups, such as ``model``, and the keys of train.yaml.
    groups = {file.name for file in config_folder().iterdir() if file.is_dir()}
    training = {*groups, *map(str, compose.compose_config("train", []))}
    keys = {"recipe", "output", "dry_run", *get_type_hints(recipe)}
    own, base, extras = sort_arguments(arguments, keys, training, recipe.kinds)
    given = compose.compose_config("recipe", own)
    chosen = recipe(**compose.resolve_fields(given, recipe))
    if given.output in (None, ""):
        raise InputError("output= names no folder; give one")
    plan = Plan(compose.resolve_path(given, "output"), base, extras, _compose)
    chosen.add(plan)
    plan.complete()
    if compose.resolve_value(given, "dry_run", bool):
        _show(plan)
    else:
        _run(plan)


def _compose(verb: str, arguments: Sequence[str], run: RunConfig | None) -> Any:
    """The config of a verb; its arguments are checked with the run of the model that it reads."""
    with nullcontext() if verb == "train" else errors_name(verb):
        config = compose.compose_config(verb, arguments)
        if verb == "train":
            return compose.run_settings(config)
        values: Any = OmegaConf.to_container(config)
        if run is not None:
            changed_search(run.decoding, search_changes(arguments, values["decoding"]))
        if verb == "translate":
            translate.check(command_settings(verb, config, arguments), arguments)
        if verb == "evaluate":
            metrics = resolve_metrics(config, run)
            for name in compose.resolve_value(config, "scores", Sequence[str] | None) or ():
                build_metric(name, metrics)
    return dict(values)


def _run(plan: Plan) -> None:
    plan.folder.mkdir(parents=True, exist_ok=True)
    log = partial(print, "recipe:", file=sys.stderr, flush=True)
    run_stages(plan.stages, given_path(plan.data.cache), log)
    training, evaluation = plan.stages[-2:]
    scores = {
        name.partition(".")[0]: rows
        for stage in (evaluation, training)
        for name, rows in read_scores(stage.folder).items()
    }
    report = {"checkpoint": str(training.outputs[0]), "scores": scores}
    print(json.dumps(report, indent=1, ensure_ascii=False))


def _show(plan: Plan) -> None:
    # All states first: a missing input raises InputError before anything is printed.
    plan_states = list(states(plan.stages, given_path(plan.data.cache)))
    for stage, state in zip(plan.stages, plan_states, strict=True):
        print(f"# {stage.name} ({state})")
        if stage.verb == "translate":
            # translate writes a file, but does not create its folder.
            print(f"mkdir -p {shlex.quote(str(stage.folder))}")
        print(stage.command)
