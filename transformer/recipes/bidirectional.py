"""Bidirectional training: one model learns both directions, and then goes on with one of them.

Ding et al. 2021, "Improving Neural Machine Translation by Bidirectional Training": no tags, one
vocabulary, a third of the updates for both directions. It does not run anything.
"""

from dataclasses import dataclass
from typing import Any

from transformer.common.errors import InputError
from transformer.recipes.corpus_files import CorpusFiles
from transformer.recipes.overrides import override
from transformer.recipes.plan import Plan


@dataclass(frozen=True)
class BidirectionalConfig:
    """Keys of ``conf/recipe/bidirectional.yaml``.

    Attributes:
        pretraining: The part of ``trainer.max_steps`` that learns both directions.
    """

    pretraining: float

    def __post_init__(self) -> None:
        if not 0 < self.pretraining < 1:
            raise InputError(f"pretraining={self.pretraining} must be in (0, 1)")


def bidirectional(plan: Plan, config: BidirectionalConfig) -> None:
    """Add the stages to a plan.

    Raises:
        InputError: There are two vocabularies, or too few updates to share out.
    """
    if not plan.config["tokenizer"]["joint"]:
        raise InputError(
            "tokenizer.joint=false: both directions need one vocabulary; set tokenizer.joint=true"
        )
    first, second = _updates(plan.config["trainer"]["max_steps"], config.pretraining)
    texts = plan.text()
    both = plan.train("pretrain", _both(texts), settings=first)
    last = plan.train("finetune", texts.alone, {"finetune_from": both}, second)
    plan.evaluate([last], texts)


def _updates(total: int, share: float) -> tuple[list[str], list[str]]:
    """How many each stage makes; those without a bound in updates have the user's other ones."""
    if total == -1:
        return [], []
    first = round(total * share)
    if not 0 < first < total:
        raise InputError(
            f"pretraining={share} of trainer.max_steps={total} leaves a stage without an update; "
            "set a larger trainer.max_steps"
        )
    return [override("trainer.max_steps", first)], [override("trainer.max_steps", total - first)]


def _both(texts: CorpusFiles) -> dict[str, Any]:
    """Keys of ``data.``: each pair in both directions; nothing is tested before the end."""
    corpora = {}
    for name, one in (("forward", texts), ("backward", texts.swapped)):
        splits = {"train": one["train"], "validation": one["validation"], "test_size": 0}
        corpora[name] = {"source": one.source, "target": one.target, **splits}
    return texts.mixed(corpora)
