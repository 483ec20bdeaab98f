"""Which recipes there are: how each is set, what kinds of stages it has, and what adds them.

It does not know what is in a stage.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from transformer.common.schema import typed_value
from transformer.recipes.backtranslate import BacktranslateConfig, backtranslate
from transformer.recipes.bidirectional import BidirectionalConfig, bidirectional
from transformer.recipes.distill import DistillConfig, distill
from transformer.recipes.plan import Plan


@dataclass(frozen=True)
class Recipe:
    """A way to a better model.

    Attributes:
        config: The dataclass of its keys.
        kinds: Of its stages, for the user to give arguments to: ``KIND.KEY=VALUE``.
        add: Adds its stages to a plan; returns the checkpoint of the last model.
    """

    config: type
    kinds: tuple[str, ...]
    add: Callable[[Plan, Any], Path]

    def settings(self, values: Mapping[str, Any]) -> Any:
        """The keys of the recipe, typed.

        Raises:
            InputError: A value has the wrong type, or is out of its range.
        """
        hints = get_type_hints(self.config)
        return self.config(**{key: typed_value(values[key], hints[key], key) for key in hints})


RECIPES: dict[str, Recipe] = {
    "distill": Recipe(
        DistillConfig, ("teacher", "evaluate_teachers", "translate", "student", "evaluate"), distill
    ),
    "backtranslate": Recipe(
        BacktranslateConfig,
        ("reverse", "evaluate_reverse", "translate", "forward", "evaluate"),
        backtranslate,
    ),
    "bidirectional": Recipe(
        BidirectionalConfig, ("pretrain", "finetune", "evaluate"), bidirectional
    ),
}
"""By the name that ``recipe=`` gives."""
