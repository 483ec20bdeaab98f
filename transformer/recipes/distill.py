"""Distillation: a student learns what teachers translate."""

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
