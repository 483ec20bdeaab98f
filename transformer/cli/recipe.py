"""``recipe``: a chain of training runs and translations that can be stopped and resumed.

Its own keys are taken from conf/recipe.yaml; all others are those of train.py.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from omegaconf import DictConfig, ListConfig, OmegaConf

from transformer.cli.config.compose import compose_config, config_folder
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError
from transformer.common.files import given_path

if TYPE_CHECKING:
    from transformer.recipes.plan import Plan


def main(arguments: Sequence[str]) -> int:
    """Run a recipe, or resume it; returns the exit code."""
    return run_to_exit_code(lambda: _recipe(arguments))


def _recipe(arguments: Sequence[str]) -> None:
    from transformer.common.schema import typed_value
    from transformer.recipes.overrides import sort_arguments
    from transformer.recipes.plan import Plan
    from transformer.recipes.registry import RECIPES

    named = [one for one in arguments if one.startswith("recipe=")] or ["recipe="]
    recipe = RECIPES.get(named[-1].removeprefix("recipe="))
    if recipe is None:
        raise InputError(f"{named[-1]} names no recipe; choose {' or '.join(RECIPES)}")
    hints = get_type_hints(recipe.config)
    groups = {file.name for file in config_folder().iterdir() if file.is_dir()}
    training = {*groups, *map(str, compose_config("train", []))}
    own, base, extras = sort_arguments(
        arguments, {"recipe", "output", "dry_run", *hints}, training, recipe.kinds
    )
    values = compose_config("recipe", own)
    plain: Any = OmegaConf.to_container(values)
    config = recipe.config(**{key: typed_value(plain[key], hints[key], key) for key in hints})
    if plain["output"] in (None, ""):
        raise InputError("output= names no folder; give one")
    plan = Plan(given_path(str(plain["output"])), base, extras, _compose)
    recipe.add(plan, config)
    plan.complete()
    (_show if typed_value(plain["dry_run"], bool, "dry_run") else _run)(plan)


def _run(plan: "Plan") -> None:
    """Run the stages; print the last model, and the scores of its training and its evaluation."""
    from transformer.recipes.runner import run_stages

    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output={plan.folder} cannot be made: {error.strerror}") from error
    run_stages(plan.stages, given_path(plan.data.cache), _tell)
    training, evaluation = plan.stages[-2:]
    scores = {
        file.name.partition(".")[0]: json.loads(file.read_text(encoding="utf-8"))
        for stage in (evaluation, training)
        for file in sorted(stage.folder.glob("*.json"))
    }
    report = {"checkpoint": str(training.outputs[0]), "scores": scores}
    print(json.dumps(report, indent=1, ensure_ascii=False))


def _show(plan: "Plan") -> None:
    """Print what would be done, as a script."""
    from transformer.recipes.runner import states

    for stage, state in zip(
        plan.stages, states(plan.stages, given_path(plan.data.cache)), strict=True
    ):
        print(f"# {stage.name} ({state})")
        if stage.verb == "translate":
            # It makes a file, and no folder.
            print(f"mkdir -p {shlex.quote(str(stage.folder))}")
        print(stage.command)


def _tell(line: str) -> None:
    print(f"recipe: {line}", file=sys.stderr, flush=True)


def _compose(
    verb: str, arguments: Sequence[str], trained: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The config of a verb, checked against the search of its model; an error names the verb."""
    try:
        config = compose_config(verb, arguments)
        if trained is not None:
            _check(verb, arguments, config, trained)
    except InputError as error:
        raise InputError(f"{verb}: {error}" if verb != "train" else str(error)) from error
    values: Any = OmegaConf.to_container(config)
    return values


def _check(
    verb: str, arguments: Sequence[str], config: DictConfig, trained: Mapping[str, Any]
) -> None:
    """Refuse what ``translate`` and ``evaluate`` would, once a model is there."""
    from transformer.cli.evaluate.evaluate import check_scoring
    from transformer.cli.load import check_nbest, resolve_batch_tokens, resolve_search
    from transformer.cli.models import check_device, resolve_averaging
    from transformer.common.schema import typed_value
    from transformer.model.layers.quantization import Precision

    composed: Any = OmegaConf.to_container(config.decoding)
    search = resolve_search(arguments, composed, trained)
    if config.get("format") != "json":
        check_nbest(arguments, search, "leave it out")
    resolve_batch_tokens(config)
    typed_value(config.precision, Precision, "precision")
    check_device(config.device)
    resolve_averaging(
        config, len(config.checkpoint) if isinstance(config.checkpoint, ListConfig) else 1
    )
    if verb == "evaluate":
        check_scoring(config)
