"""``heads``: what every head is worth; JSON on stdout, tables on stderr."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from omegaconf import DictConfig, ListConfig

from transformer.cli.config.compose import compose_config
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError

if TYPE_CHECKING:
    from transformer.decoding.translation.translator import Translator
    from transformer.evaluation.attention.head_scores import Scorer


def main(arguments: Sequence[str]) -> int:
    """Rank heads; returns the exit code."""
    return run_to_exit_code(lambda: _heads(compose_config("heads", arguments), arguments))


def _heads(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.load import load_translator
    from transformer.common.schema import typed_value
    from transformer.report.heads import HeadReport

    alone = typed_value(config.alone, bool, "alone")
    prune = list(config.prune) if isinstance(config.prune, ListConfig) else [config.prune]
    shares = typed_value(prune, Sequence[float], "prune")
    if not all(0 < share <= 1 for share in shares) or len(set(shares)) < len(shares):
        raise InputError(f"prune={prune} must be shares of the heads, each once, above 0 to 1")
    _check_unused_search(config, arguments)
    translator, run = load_translator(config, arguments)
    scorer = _scorer(config, translator, run)
    if config.split != "validation":
        note = f"heads chosen on split={config.split} do too well there; choose on validation"
        print(f"note: {note}", file=sys.stderr)
    report = HeadReport.measure(translator.model, scorer, alone=alone, fractions=shares)
    report.print_tables()
    print(json.dumps(report.to_json(), indent=1))


def _check_unused_search(config: DictConfig, arguments: Sequence[str]) -> None:
    """Refuse a search where nothing is translated.

    Raises:
        InputError: One is given.
    """
    given = [one for one in arguments if one.partition("=")[0].partition(".")[0] == "decoding"]
    if given and config.metric == "loss":
        raise InputError(f"{given[0]} does nothing with metric=loss; set metric=bleu too")


def _scorer(config: DictConfig, translator: "Translator", run: dict[str, Any]) -> "Scorer":
    from transformer.cli.evaluate.scored_text import require_trusted
    from transformer.common.schema import typed_value
    from transformer.evaluation.attention.head_scores import bleu_scorer, loss_scorer

    metric = typed_value(config.metric, Literal["loss", "bleu"], "metric")
    sentences = typed_value(config.sentences, int, "sentences")
    if sentences < 1:
        raise InputError(f"sentences={sentences} must be at least 1")
    require_trusted(config, run)
    make = loss_scorer if metric == "loss" else bleu_scorer
    return make(translator, run, config.split, sentences)
