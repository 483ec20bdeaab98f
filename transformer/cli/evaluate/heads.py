"""``heads``: what every head is worth, by the cost of switching it off."""

import json
import sys
from collections.abc import Sequence

from omegaconf import DictConfig, ListConfig

from transformer.cli import translator as described
from transformer.cli.config.compose import resolve_positive, resolve_value
from transformer.cli.evaluate.scored_text import require_trusted
from transformer.common.errors import InputError
from transformer.common.schema import typed_value
from transformer.evaluation.attention.head_ablation import loss_scorer, metric_scorer
from transformer.report.heads import HeadReport
from transformer.report.scores import print_json


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Rank the heads of a model by the cost of switching them off."""
    metric = resolve_value(config, "metric", str | None)
    sentences = resolve_positive(config, "sentences")
    prune = list(config.prune) if isinstance(config.prune, ListConfig) else [config.prune]
    fractions = typed_value(prune, Sequence[float], "prune")
    if not all(0 < fraction <= 1 for fraction in fractions) or len(set(fractions)) < len(fractions):
        raise InputError(f"prune={prune} must be fractions of the heads, each once, above 0 to 1")
    translator, run = described.load(config, arguments)
    require_trusted(config, run)
    text = translator, run, config.split, sentences
    metric = metric or run.metrics.choose
    scorer = loss_scorer(*text) if metric == "loss" else metric_scorer(*text, metric)
    if config.split != "validation":
        note = f"heads chosen on split={config.split} do too well there; choose on validation"
        print(f"note: {note}", file=sys.stderr)
    report = HeadReport.measure(translator.model, scorer, fractions)
    report.print_tables()
    print_json(json.dumps(report.to_json(), indent=1))
