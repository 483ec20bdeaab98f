"""``heads``: what every head is worth, by the cost of switching it off."""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from transformer.checkpoint.checkpoint import Loaded
from transformer.checkpoint.trust import require_trust
from transformer.evaluation.head_ablation import ablate, loss_scorer, metric_scorer
from transformer.interchange.translators import load_translator
from transformer.model.head_masks import HeadName, attention_heads, heads_off
from transformer.reports.heads import HeadReport
from transformer.settings.commands import HeadsConfig

log = logging.getLogger(__name__)


class Progress(NamedTuple):
    """How many of all sets of heads are scored, and on which text."""

    done: int
    total: int
    text: str


def heads(
    config: HeadsConfig,
    show: Callable[[Progress], object] = lambda progress: None,
    *,
    loaded: Loaded = lambda checkpoints: None,
) -> HeadReport:
    """Rank the heads of a model by the cost of switching them off.

    Args:
        config: The settings; InputError if they contradict each other or the checkpoint.
        show: Is called after each score.
        loaded: As for ``load_translator``.
    """
    translator, run = load_translator(config.translator, as_stored=True, loaded=loaded)
    require_trust(run, config.trust, config.checkpoint)
    text = translator, run, config.split, config.sentences
    metric = config.metric or run.metrics.choose
    scorer = loss_scorer(*text) if metric == "loss" else metric_scorer(*text, metric)
    if config.split != "validation":
        log.warning(
            "note: heads chosen on split=%s do too well there; choose on validation", config.split
        )
    model = translator.model
    total = 1 + len(attention_heads(model)) - len(heads_off(model)) + len(config.fractions)
    done = 0

    def measure(off: Sequence[HeadName]) -> float:
        nonlocal done
        score = scorer.measure(off)
        done += 1
        show(Progress(done, total, scorer.measured))
        return score

    return HeadReport(scorer, ablate(model, measure, scorer.better, config.fractions))
