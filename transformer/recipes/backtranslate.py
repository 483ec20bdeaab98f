"""Back-translation: synthetic sources for text of the target language."""

from dataclasses import dataclass
from typing import Annotated

from transformer.common.errors import InputError
from transformer.common.schema import Range
from transformer.recipes.plan import Plan, Recipe, monolingual_file, only_train


@dataclass(frozen=True)
class Backtranslate(Recipe):
    """Back-translation: a reverse model makes sources for text of the target language.

    The forward model learns from the bitext and from these synthetic pairs. Sennrich et al. 2016,
    "Improving Neural Machine Translation Models with Monolingual Data"; tags: Caswell et al. 2019,
    "Tagged Back-Translation"; sampling: Edunov et al. 2018, "Understanding Back-Translation at
    Scale". Keys of ``conf/recipe/backtranslate.yaml``.
    """

    kinds = ("reverse", "evaluate_reverse", "translate", "forward", "evaluate")

    monolingual: str
    reverse: str | None = None
    tag: str | None = "backtranslated"
    bitext_share: Annotated[float, Range(above=0, below=1)] | None = None

    def add(self, plan: Plan) -> None:
        """Add the stages; raises InputError if the reverse model is not of that direction."""
        if plan.data.source_kind != "text":
            raise InputError(
                f"back-translation writes source text, and data.source_kind="
                f"{plan.data.source_kind}; use recipe distill"
            )
        text = plan.text()
        if self.reverse is None:
            settings = plan.reverse_arguments
            reverse = plan.train("reverse", text.swapped.alone, settings=settings)
        else:
            reverse = plan.existing("reverse", self.reverse, text.swapped)
        plan.evaluate([reverse], text.swapped, "evaluate_reverse")
        monolingual = monolingual_file(self.monolingual)
        keys = {"checkpoint": reverse, "input": monolingual}
        [source] = plan.add("translate", "translate", keys, [f"synthetic.{text.source}"])
        bitext = text.as_corpus
        synthetic = only_train([source, monolingual], self.tag)
        if self.bitext_share is not None:
            bitext["weight"] = self.bitext_share
            synthetic["weight"] = round(1 - self.bitext_share, 9)
        forward = plan.train("forward", text.mixed({"bitext": bitext, "synthetic": synthetic}))
        plan.evaluate([forward], text)
