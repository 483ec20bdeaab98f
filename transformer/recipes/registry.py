"""The recipes by name: distillation and back-translation."""

from transformer.recipes.backtranslate import Backtranslate
from transformer.recipes.distill import Distill
from transformer.recipes.plan import Recipe

RECIPES: dict[str, type[Recipe]] = {
    "distill": Distill,
    "backtranslate": Backtranslate,
}
