"""``compare``: is a system better than another, how sure is that, and where do they differ?"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.common.errors import InputError

if TYPE_CHECKING:
    from transformer.evaluation.comparison.compare import ComparisonConfig


def _composed(arguments: Sequence[str]) -> tuple[DictConfig, list[str]]:
    """The config, and the arguments without paths: ``compare A B`` is ``runs=[A,B]``."""
    # A key has no slash: runs/lr=0.1 is a path.
    paths = [one for one in arguments if "=" not in one or "/" in one.partition("=")[0]]
    given = [one for one in arguments if one not in paths]
    keys = {one.partition("=")[0] for one in given}
    if "checkpoint" in keys or bool(paths) == ("runs" in keys):
        raise InputError(
            "compare takes two systems or more, without a key: compare RUN_A RUN_B (or runs=[A,B]);"
            " each is a run directory, a checkpoint or a file of hypotheses"
        )
    # Paths need no quotes if Hydra does not read them.
    config = compose_config("compare", [*given, "runs=[]"] if paths else given)
    if paths:
        config.runs = paths
    if "seed" not in keys:
        config.seed = _sacrebleu_seed(config.seed)
    return config, given


def _sacrebleu_seed(default: int) -> int:
    """The seed of sacreBLEU's own variable, where it is set.

    Raises:
        InputError: It is no number from 1 on; sacreBLEU would draw without a seed, or fail.
    """
    from transformer.evaluation.comparison.significance import SEED

    value = os.environ.get(SEED, str(default))
    if not value.isdecimal() or int(value) < 1:
        raise InputError(
            f"{SEED}={value!r} in the environment must be a number, at least 1; set it so, unset "
            "it, or give seed=NUMBER"
        )
    return int(value)


def run(arguments: Sequence[str]) -> None:
    """Compare systems."""
    config, arguments = _composed(arguments)
    from transformer.cli.evaluate.systems import find_compared, own_training_text, training_text
    from transformer.evaluation.comparison.compare import compare
    from transformer.report.comparison import (
        format_comparison,
        print_comparison,
        save_comparison,
    )
    from transformer.report.scores import require_writable

    # Errors of the call come before minutes of translation.
    _comparison(config, None)
    training = own_training_text(config)
    output = None if config.output is None else resolve_path(config, "output")
    if output is not None:
        require_writable(output)
    found = find_compared(config, arguments, lambda run: _comparison(config, run))
    if config.training is True:
        training = training_text(config, found.run)
    comparison = compare(found.text, found.systems, found.comparison, training)
    print_comparison(comparison)
    print(format_comparison(comparison))
    if output is not None:
        save_comparison(output, comparison)


def _comparison(config: DictConfig, run: dict[str, Any] | None) -> "ComparisonConfig":
    from transformer.cli.evaluate.scored_text import resolve_metrics
    from transformer.common.schema import typed_value
    from transformer.evaluation.comparison.compare import ComparisonConfig
    from transformer.evaluation.comparison.significance import Resampling

    values: Any = OmegaConf.to_container(config)

    def fields(kind: type) -> dict[str, Any]:
        hints = {key: hint for key, hint in get_type_hints(kind).items() if key in values}
        return {key: typed_value(values[key], hint, key) for key, hint in hints.items()}

    return ComparisonConfig(
        **fields(ComparisonConfig),
        resampling=Resampling(**fields(Resampling)),
        scoring=resolve_metrics(config, run),
    )
