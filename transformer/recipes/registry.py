"""The recipes: the keys of each, the kinds of its stages, and what adds them to a plan.

It does not know what is in a stage.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from transformer.recipes.backtranslate import BacktranslateConfig, backtranslate
from transformer.recipes.bidirectional import BidirectionalConfig, bidirectional
from transformer.recipes.distill import DistillConfig, distill
from transformer.recipes.plan import Plan


class Recipe(NamedTuple):
    """A way to a better model."""

    config: type
    """The dataclass of its keys."""
    add: Callable[[Plan, Any], None]
    """Adds its stages to a plan: the last two train a model, and evaluate it."""
    kinds: tuple[str, ...]
    """Of its stages, for the user to give arguments to: ``KIND.KEY=VALUE``."""


RECIPES = {
    "distill": Recipe(
        DistillConfig, distill, ("teacher", "evaluate_teachers", "translate", "student", "evaluate")
    ),
    "backtranslate": Recipe(
        BacktranslateConfig,
        backtranslate,
        ("reverse", "evaluate_reverse", "translate", "forward", "evaluate"),
    ),
    "bidirectional": Recipe(
        BidirectionalConfig, bidirectional, ("pretrain", "finetune", "evaluate")
    ),
}
"""By the name that ``recipe=`` gives."""
