"""The recipes by name: distillation, back-translation and bidirectional training."""

from transformer.recipes.backtranslate import Backtranslate
from transformer.recipes.bidirectional import Bidirectional
from transformer.recipes.distill import Distill
from transformer.recipes.plan import Recipe

RECIPES: dict[str, type[Recipe]] = {
    "distill": Distill,
    "backtranslate": Backtranslate,
    "bidirectional": Bidirectional,
}
