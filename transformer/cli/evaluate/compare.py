"""``compare``: is a system better than another, how sure is that, and where do they differ?"""

from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.cli.config.compose import compose_config, fetch_models, resolve_value, trust_code
from transformer.common.errors import InputError


def _composed(arguments: Sequence[str]) -> tuple[DictConfig, list[str]]:
    """The config, and the arguments without paths: ``compare A B`` is ``runs=[A,B]``."""
    # A key has no slash: runs/lr=0.1 is a path.
    paths = [one for one in arguments if "=" not in one or "/" in one.partition("=")[0]]
    given = [one for one in arguments if one not in paths]
    # Paths need no quotes if Hydra does not read them.
    config = compose_config("compare", ["runs=[]", *given])
    trust_code(config)
    config.runs = [*resolve_value(config, "runs", Sequence[str]), *paths]
    if len(config.runs) < 2:
        raise InputError(
            "compare takes two systems or more: compare RUN_A RUN_B (or runs=[A,B]); each is a run "
            "directory, a checkpoint or a file of hypotheses"
        )
    fetch_models(config)
    return config, given


def run(arguments: Sequence[str]) -> None:
    """Compare systems."""
    config, arguments = _composed(arguments)
    # Torch takes seconds to import: not before the call is known to be right.
    from transformer.cli.evaluate import systems
    from transformer.cli.evaluate.scored_text import writable_output
    from transformer.evaluation.comparison.compare import compare
    from transformer.report.comparison import format_comparison, print_comparison, save_comparison
    from transformer.report.scores import print_json

    # Errors of the call come before minutes of translation.
    systems.resolve_comparison(config, None)
    training = systems.own_training_text(config)
    output = writable_output(config)
    found = systems.find_compared(config, arguments)
    if config.training is True:
        training = systems.training_text(config, found.run)
    comparison = compare(found.text, found.systems, found.comparison, training)
    print_comparison(comparison)
    print_json(format_comparison(comparison))
    if output is not None:
        save_comparison(output, comparison)
