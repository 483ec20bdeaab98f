"""``compare``: is a system better than another, how sure is that, and where do they differ?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from omegaconf import DictConfig, OmegaConf

from transformer.cli.compose import compose_config, config_folder
from transformer.cli.exit import exit_code_of
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.evaluation.comparison import ComparisonConfig


def main(arguments: Sequence[str]) -> int:
    """Compare; returns the exit code."""
    return exit_code_of(lambda: _compare(*_composed(arguments)))


def _composed(arguments: Sequence[str]) -> tuple[DictConfig, list[str]]:
    """The config, and the arguments but for paths: ``compare A B`` is ``runs=[A,B]``."""
    # A key has no slash: runs/lr=0.1 is a path.
    paths = [one for one in arguments if "=" not in one or "/" in one.partition("=")[0]]
    given = [one for one in arguments if one not in paths]
    if not paths:
        return compose_config("compare", given), given
    if any(one.partition("=")[0] == "runs" for one in given):
        raise InputError(f"{paths[0]} stands beside runs=; name all systems in one of both ways")
    # Paths need no quotes for Hydra where it does not read them.
    config = compose_config("compare", [*given, "runs=[]"])
    config.runs = paths
    return config, given


def _compare(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.compared import find_compared, training_text
    from transformer.evaluation.comparison import compare
    from transformer.evaluation.comparison_report import (
        format_comparison,
        print_comparison,
        save_comparison,
    )

    _wanted(config, None)  # What is wrong in it should not show after minutes of translation.
    found = find_compared(config, arguments)
    wanted = _wanted(config, found.run)
    training = training_text(config, found.run)
    comparison = compare(found.text, found.systems, wanted, training)
    if config.output is not None:
        save_comparison(Path(config.output), comparison)
    print_comparison(comparison)
    print(format_comparison(comparison))


def _wanted(config: DictConfig, run: dict[str, Any] | None) -> "ComparisonConfig":
    from transformer.evaluation.comparison import ComparisonConfig
    from transformer.evaluation.metrics import MetricsConfig
    from transformer.evaluation.significance import Resampling
    from transformer.training.typed import typed, typed_value

    values: Any = OmegaConf.to_container(config)

    def of(kind: type) -> dict[str, Any]:
        hints = {key: hint for key, hint in get_type_hints(kind).items() if key in values}
        return {key: typed_value(values[key], hint, key) for key, hint in hints.items()}

    plain = OmegaConf.load(config_folder() / "metrics" / "detokenised.yaml")
    known: Any = OmegaConf.to_container(plain) if run is None else run["metrics"]
    given = {key: values[key] for key in ("tokenize", "lowercase") if values[key] is not None}
    return ComparisonConfig(
        **of(ComparisonConfig),
        resampling=Resampling(**of(Resampling)),
        scoring=typed(MetricsConfig, {**known, **given}, "metrics"),
    )
