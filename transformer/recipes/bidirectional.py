"""Bidirectional training: one model learns both directions, and then one of them alone.

Ding et al. 2021, "Improving Neural Machine Translation by Bidirectional Training": no tags, one
vocabulary, a third of the updates for both directions.
"""

from dataclasses import dataclass
from typing import Annotated

from transformer.common.errors import InputError
from transformer.common.schema import Range
from transformer.recipes.corpus_files import CorpusFiles
from transformer.recipes.overrides import override
from transformer.recipes.plan import Plan, Recipe


@dataclass(frozen=True)
class Bidirectional(Recipe):
    """Keys of ``conf/recipe/bidirectional.yaml``."""

    kinds = ("pretrain", "finetune", "evaluate")

    pretraining: Annotated[float, Range(above=0, below=1)] = 0.3333
    """The fraction of ``trainer.max_steps`` that learns both directions."""

    def add(self, plan: Plan) -> None:
        """Add the stages; raises InputError for two vocabularies."""
        if not plan.config["tokenizer"]["joint"]:
            raise InputError(
                "tokenizer.joint=false: both directions need one vocabulary; set "
                "tokenizer.joint=true"
            )
        first, second = _updates(plan.config["trainer"]["max_steps"], self.pretraining)
        text = plan.text()
        directions = {"forward": _without_test(text), "backward": _without_test(text.swapped)}
        both = plan.train("pretrain", text.mixed(directions), settings=first)
        last = plan.train("finetune", text.alone, {"finetune_from": both}, second)
        plan.evaluate([last], text)


def _updates(total: int, fraction: float) -> tuple[list[str], list[str]]:
    """Overrides with the updates of each stage; none if the user does not bound the updates."""
    if total == -1:
        return [], []
    first = min(max(1, round(total * fraction)), total - 1)
    return [override("trainer.max_steps", first)], [override("trainer.max_steps", total - first)]


def _without_test(text: CorpusFiles) -> dict[str, object]:
    """Keys of one direction."""
    splits = {"train": text["train"], "validation": text["validation"], "test_size": 0}
    return {"source": text.source, "target": text.target, **splits}
