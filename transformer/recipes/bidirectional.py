"""Bidirectional training: both directions at first, then one of them."""

from dataclasses import dataclass
from typing import Annotated

from transformer.common.errors import InputError
from transformer.common.schema import Range
from transformer.recipes.overrides import override
from transformer.recipes.plan import Plan, Recipe


@dataclass(frozen=True)
class Bidirectional(Recipe):
    """Bidirectional training: one model learns both directions, and then one of them alone.

    Ding et al. 2021, "Improving Neural Machine Translation by Bidirectional Training": no tags, one
    vocabulary, a third of the updates for both directions. Keys of
    ``conf/recipe/bidirectional.yaml``.
    """

    kinds = ("pretrain", "finetune", "evaluate")

    pretraining: Annotated[float, Range(above=0, below=1)] = 0.3333

    def add(self, plan: Plan) -> None:
        """Add the stages; raises InputError for two vocabularies."""
        if not plan.config["tokenizer"]["joint"]:
            raise InputError(
                "tokenizer.joint=false: both directions need one vocabulary; set "
                "tokenizer.joint=true"
            )
        first, second = list[str](), list[str]()
        if (total := plan.config["trainer"]["max_steps"]) != -1:
            updates = min(max(1, round(total * self.pretraining)), total - 1)
            first = [override("trainer.max_steps", updates)]
            second = [override("trainer.max_steps", total - updates)]
        text = plan.text()
        sides = {"forward": text, "backward": text.swapped}
        directions = {
            name: {
                **{"source": side.source, "target": side.target, "train": side["train"]},
                **{"validation": side["validation"], "test_size": 0},
            }
            for name, side in sides.items()
        }
        both = plan.train("pretrain", text.mixed(directions), settings=first)
        last = plan.train("finetune", text.alone, {"finetune_from": both}, second)
        plan.evaluate([last], text)
