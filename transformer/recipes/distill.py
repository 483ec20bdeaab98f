"""Distillation: a student learns what teachers translate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.common.schema import Range, override_key
from transformer.data.text.parallel import file_format
from transformer.recipes.overrides import override
from transformer.recipes.plan import (
    CorpusFiles,
    Plan,
    Recipe,
    monolingual_file,
    one_or_all,
    only_train,
)
from transformer.settings.decoding import SearchConfig


@dataclass(frozen=True)
class Distill(Recipe):
    """Sequence-level knowledge distillation: a student learns what an ensemble of teachers writes.

    Kim and Rush 2016, "Sequence-Level Knowledge Distillation"; ensembles: Freitag et al. 2017,
    "Ensemble Distillation for Neural Machine Translation"; more text than the teachers learned
    from: Buciluă et al. 2006, "Model Compression". Keys of ``conf/recipe/distill.yaml``.
    """

    kinds = ("teacher", "evaluate_teachers", "translate", "select", "clean", "student", "evaluate")

    teachers: Annotated[int, Range(1)] | Sequence[str] = 1
    """How many to train, the first with the seed of the call, each other with the next; or
    existing runs or checkpoints."""
    teacher: str | None = None
    """In place of ``teachers`` a run, files of translations, or the address of a server."""
    clean: bool = False
    """Whether ``transformer clean`` removes faulty pairs from what the teachers write."""
    text: Literal["distilled", "original_and_distilled"] = "original_and_distilled"
    """What the student learns from."""
    tag: str | None = None
    """Before the distilled sources, if the original text is learned from too; None puts none."""
    monolingual: str | None = None
    """More text of the source language, a sentence a line, which the teachers translate, too."""
    interpolation: Annotated[int, Range(2)] | None = None
    """Candidates for each sentence, of which the student learns the one nearest to the reference
    (Kim and Rush 2016, section 3.3); None takes the best translation."""
    reverse: str | None = None
    """A reverse run, which chooses among candidates without reference; None takes the best one."""

    def _objections(self) -> Iterator[str]:
        if self.teachers == ():
            yield "teachers=[] names no run; name one or more"
        if self.teacher is not None and self.teachers != 1:
            yield "teacher= and teachers= are both given; leave one out"
        if self.reverse is not None and None in (self.interpolation, self.monolingual):
            yield "reverse= chooses for interpolation=N and monolingual=FILE; give both"

    def add(self, plan: Plan) -> None:
        """Add the stages; raises InputError if a teacher is of another direction."""
        text = plan.text()
        distilled = self._translations(text)
        teachers: list[Path] = []
        if not distilled:
            teachers = self._teachers(plan, text)
            if teachers:
                plan.evaluate(teachers, text, "evaluate_teachers")
            distilled = self._translated(plan, teachers, text, text["train"], "")
        distilled = self._cleaned(plan, text, distilled, "")
        if self.text == "distilled":
            tag = None
            corpora = {"distilled": text.as_corpus | {"train": distilled}}
        else:
            tag = self.tag
            corpora = {"original": text.as_corpus, "distilled": only_train(distilled, tag)}
        if self.monolingual is not None:
            source = [monolingual_file(self.monolingual)]
            pair = self._translated(plan, teachers, text, source, "_monolingual")
            pair = self._cleaned(plan, text, pair, "_monolingual")
            corpora["monolingual"] = only_train(pair, tag)
        is_alone = len(corpora) == 1
        data = text.alone | corpora["distilled"] if is_alone else text.mixed(corpora)
        plan.evaluate([plan.train("student", data)], text)

    def _translations(self, text: CorpusFiles) -> list[Path]:
        """The files of a teacher that is a text of translations made elsewhere; else none."""
        if not self.teacher:
            return []
        path = given_path(self.teacher)
        files = [path / file.name for file in text["train"]]
        if path.is_file() and path.suffix != ".ckpt":
            files = [text["train"][0], path] if file_format(path) == "plain" else [path]
        elif not all(file.is_file() for file in files):
            return []
        if self.monolingual is not None or self.interpolation is not None:
            raise InputError(f"teacher={path}: files translate no monolingual=, nor interpolate")
        return files

    def _teachers(self, plan: Plan, text: CorpusFiles) -> list[Path]:
        """The checkpoints of teachers that exist, or that new stages train; none of a server."""
        if self.teacher is not None:
            if self.teacher.startswith(("http://", "https://")):
                return []
            return [plan.existing("teachers", self.teacher, text)]
        if isinstance(self.teachers, int):
            return [
                plan.train("teacher", text.alone, seeds, suffix=f"_{number}")
                for number, seeds in enumerate(_seeds(plan, self.teachers), 1)
            ]
        return [plan.existing("teachers", name, text) for name in self.teachers]

    def _translated(
        self, plan: Plan, teachers: Sequence[Path], text: CorpusFiles, pair: list[Path], suffix: str
    ) -> list[Path]:
        """Add the stages that translate a source; ``pair`` has its reference, if there is one."""
        source = pair[0]
        reference = pair[1] if len(pair) > 1 else None
        criterion = self._criterion(plan, text, reference)
        add = partial(plan.add, "translate", suffix=suffix)
        if not teachers:
            keys: dict[str, Any] = {"server": self.teacher, "input": source, **criterion}
            if criterion:
                keys["candidates"] = self.interpolation
            settings = [
                override("answers", str(plan.folder / "answers.jsonl")),
                override("source", text.source),
                override("target", text.target),
            ]
            return [*add("ask", keys, ["source.txt", "target.txt"], settings)]
        keys = {"checkpoint": one_or_all(teachers), "input": source}
        name = f"synthetic.{text.target}" if reference is None else reference.name
        if not criterion:
            return [source, *add("translate", keys, [name])]
        keys |= {"decoding.nbest": self.interpolation, "format": "json"}
        # The search of the validation of the teachers, as wide as the candidates at least.
        settings = []
        search = plan.search_of(teachers[0])
        if search.algorithm not in ("beam", "greedy"):
            search = SearchConfig()
            settings.append("decoding=beam")
        if search.width < (self.interpolation or 0):
            settings.append(override("decoding.beam_size", self.interpolation))
        if "decoding" in map(override_key, plan.extras.get("translate", ())):
            settings = []  # a search chosen by the user sets its own width
        [nbest] = add("translate", keys, [f"{name}.jsonl"], settings)
        keys = {"nbest": nbest, **criterion}
        if reference is None:
            keys["source"] = source
        return [source, *plan.add("select", "select", keys, [name], suffix=suffix)]

    def _criterion(self, plan: Plan, text: CorpusFiles, reference: Path | None) -> dict[str, Any]:
        """The keys that choose among candidates; empty if the best translation is taken."""
        if reference is None:
            if self.reverse is None:
                return {}
            return {"reverse": plan.existing("reverse", self.reverse, text.swapped)}
        if not self.interpolation:
            return {}
        # They are compared as translations are scored in training.
        metrics = plan.config.metrics
        return {
            "reference": reference,
            "tokenize": metrics.tokenize,
            "lowercase": metrics.lowercase,
        }

    def _cleaned(self, plan: Plan, text: CorpusFiles, pair: list[Path], suffix: str) -> list[Path]:
        """Add the stage that cleans a text, if there is one."""
        if not self.clean:
            return pair
        keys = {f"data.{key}": value for key, value in {**text.alone, "train": pair}.items()}
        names = [file.name for file in pair]
        arguments = ["output=x", *plan.extras.get("clean", ())]
        models = plan.compose("clean", arguments, None).models or ()
        reads = [
            plan.existing("clean.models", model, direction)
            for model, direction in zip(models, (text, text.swapped), strict=False)
        ]
        return [
            *plan.add("clean", "clean", keys, names, ["data=files"], suffix=suffix, reads=reads)
        ]


def _seeds(plan: Plan, teachers: int) -> list[dict[str, int]]:
    """The seeds of each teacher and of the order of its batches; a single one has the user's."""
    if teachers == 1:
        return [{}]
    seeds = {"seed": plan.config.seed, "data.seed": plan.config.data.seed}
    return [{key: seed + n for key, seed in seeds.items()} for n in range(teachers)]
