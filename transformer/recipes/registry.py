"""The recipes: distillation, back-translation and bidirectional training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from transformer.common.errors import InputError
from transformer.common.schema import Range
from transformer.recipes.corpus_files import CorpusFiles, monolingual_file, only_train
from transformer.recipes.overrides import override, override_key
from transformer.recipes.plan import Plan, Recipe, one_or_all


@dataclass(frozen=True)
class Distill(Recipe):
    """Sequence-level knowledge distillation: a student learns what an ensemble of teachers writes.

    Kim and Rush 2016, "Sequence-Level Knowledge Distillation"; ensembles: Freitag et al. 2017,
    "Ensemble Distillation for Neural Machine Translation"; more text than the teachers learnt from:
    Buciluă et al. 2006, "Model Compression". Keys of ``conf/recipe/distill.yaml``.
    """

    kinds = ("teacher", "evaluate_teachers", "translate", "student", "evaluate")

    teachers: Annotated[int, Range(1)] | Sequence[str] = 1
    """How many to train, the first with the seed of the call, each other with the next; or
    existing runs or checkpoints."""
    text: Literal["distilled", "original_and_distilled"] = "original_and_distilled"
    """What the student learns from."""
    tag: str | None = None
    """Before the distilled sources, if the original text is learnt from too; None puts none."""
    monolingual: str | None = None
    """More text of the source language, a sentence a line, which the teachers translate, too."""
    interpolation: Annotated[int, Range(2)] | None = None
    """Candidates for each sentence, of which the student learns the one nearest to the reference
    (Kim and Rush 2016, section 3.3); None takes the best translation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teachers == ():
            raise InputError("teachers=[] names no run; name one or more")

    def add(self, plan: Plan) -> None:
        """Add the stages; raises InputError if a teacher is of another direction."""
        text = plan.text()
        if isinstance(self.teachers, int):
            teachers = [
                plan.train("teacher", text.alone, seeds, suffix=f"_{number}")
                for number, seeds in enumerate(_seeds(plan, self.teachers), 1)
            ]
        else:
            teachers = [plan.existing("teachers", name, text) for name in self.teachers]
        plan.evaluate(teachers, text, "evaluate_teachers")
        distilled = [text["train"][0], self._add_target(plan, teachers, text)]
        tag = None if self.text == "distilled" else self.tag
        corpora = {"original": text.as_corpus, "distilled": only_train(distilled, tag)}
        if self.text == "distilled":
            corpora = {"distilled": text.as_corpus | {"train": distilled}}
        if self.monolingual is not None:
            source = monolingual_file(self.monolingual)
            own = {"checkpoint": one_or_all(teachers), "input": source}
            files = [f"synthetic.{text.target}"]
            [target] = plan.add("translate", "translate", own, files, suffix="_monolingual")
            corpora["monolingual"] = only_train([source, target], tag)
        alone = len(corpora) == 1
        data = text.alone | corpora["distilled"] if alone else text.mixed(corpora)
        plan.evaluate([plan.train("student", data)], text)

    def _add_target(self, plan: Plan, teachers: Sequence[Path], text: CorpusFiles) -> Path:
        """Add the stages that make the target side."""
        source, target = text["train"]
        own: dict[str, Any] = {"checkpoint": one_or_all(teachers), "input": source}
        if self.interpolation is None:
            return plan.add("translate", "translate", own, [target.name])[0]
        own |= {"decoding.nbest": self.interpolation, "format": "json"}
        # Another search that the user chooses has its own width.
        chosen = "decoding" in map(override_key, plan.extras.get("translate", ()))
        beam = ["decoding=beam", override("decoding.beam_size", self.interpolation)]
        search = [] if chosen else beam
        [nbest] = plan.add("translate", "translate", own, [f"{target.name}.jsonl"], search)
        # They are compared as translations are scored in training.
        words = {key: plan.config["metrics"][key] for key in ("tokenize", "lowercase")}
        select = {"nbest": nbest, "reference": target, **words}
        return plan.add("select", "select", select, [target.name])[0]


def _seeds(plan: Plan, teachers: int) -> list[dict[str, int]]:
    """The seeds of each teacher and of the order of its batches; a single one has the user's."""
    if teachers == 1:
        return [{}]
    seeds = {"seed": plan.config["seed"], "data.seed": plan.config["data"]["seed"]}
    return [{key: seed + n for key, seed in seeds.items()} for n in range(teachers)]


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
    """Text of the target language, a sentence a line."""
    reverse: str | None = None
    """A run or a checkpoint that translates from target to source; None trains one."""
    tag: str | None = "backtranslated"
    """Before each synthetic source; None puts none."""
    bitext_share: Annotated[float, Range(above=0, below=1)] | None = None
    """Fraction of the batches that is not synthetic; None is in proportion to the sizes."""

    def add(self, plan: Plan) -> None:
        """Add the stages; raises InputError if the reverse model is not of that direction."""
        text = plan.text()
        if self.reverse is None:
            reverse = plan.train("reverse", text.swapped.alone)
        else:
            reverse = plan.existing("reverse", self.reverse, text.swapped)
        plan.evaluate([reverse], text.swapped, "evaluate_reverse")
        monolingual = monolingual_file(self.monolingual)
        own = {"checkpoint": reverse, "input": monolingual}
        [source] = plan.add("translate", "translate", own, [f"synthetic.{text.source}"])
        bitext, synthetic = text.as_corpus, only_train([source, monolingual], self.tag)
        if self.bitext_share is not None:
            bitext["weight"] = self.bitext_share
            synthetic["weight"] = round(1 - self.bitext_share, 9)
        forward = plan.train("forward", text.mixed({"bitext": bitext, "synthetic": synthetic}))
        plan.evaluate([forward], text)


@dataclass(frozen=True)
class Bidirectional(Recipe):
    """Bidirectional training: one model learns both directions, and then one of them alone.

    Ding et al. 2021, "Improving Neural Machine Translation by Bidirectional Training": no tags, one
    vocabulary, a third of the updates for both directions. Keys of
    ``conf/recipe/bidirectional.yaml``.
    """

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


RECIPES: dict[str, type[Recipe]] = {
    "distill": Distill,
    "backtranslate": Backtranslate,
    "bidirectional": Bidirectional,
}
"""By the name that ``recipe=`` gives."""
