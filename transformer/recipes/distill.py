"""Distillation: a student learns what teachers translate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, Literal

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.common.schema import Range, override_key
from transformer.data.text.parallel import file_format
from transformer.recipes.corpus_files import CorpusFiles, monolingual_file, only_train
from transformer.recipes.overrides import override
from transformer.recipes.plan import Plan, Recipe, one_or_all


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
        files = self._files(given_path(self.teacher), text) if self.teacher else []
        given = self.teachers if self.teacher is None else [self.teacher]
        if files or (self.teacher or "").startswith(("http://", "https://")):
            teachers = []
        elif isinstance(given, int):
            teachers = [
                plan.train("teacher", text.alone, seeds, suffix=f"_{number}")
                for number, seeds in enumerate(_seeds(plan, given), 1)
            ]
        else:
            teachers = [plan.existing("teachers", name, text) for name in given]
        if teachers:
            plan.evaluate(teachers, text, "evaluate_teachers")
        distilled = files or self._translated(plan, teachers, text, text["train"], "")
        distilled = self._cleaned(plan, text, distilled, "")
        tag = None if self.text == "distilled" else self.tag
        corpora = {"original": text.as_corpus, "distilled": only_train(distilled, tag)}
        if self.text == "distilled":
            corpora = {"distilled": text.as_corpus | {"train": distilled}}
        if self.monolingual is not None:
            source = [monolingual_file(self.monolingual)]
            pair = self._translated(plan, teachers, text, source, "_monolingual")
            pair = self._cleaned(plan, text, pair, "_monolingual")
            corpora["monolingual"] = only_train(pair, tag)
        alone = len(corpora) == 1
        data = text.alone | corpora["distilled"] if alone else text.mixed(corpora)
        plan.evaluate([plan.train("student", data)], text)

    def _files(self, path: Path, text: CorpusFiles) -> list[Path]:
        """The files of a teacher that is a text of translations made elsewhere; else none."""
        found = [path / file.name for file in text["train"]]
        if path.is_file() and path.suffix != ".ckpt":
            found = [text["train"][0], path] if file_format(path) == "plain" else [path]
        elif not all(file.is_file() for file in found):
            return []
        if (self.monolingual, self.interpolation) != (None, None):
            raise InputError(f"teacher={path}: files translate no monolingual=, nor interpolate")
        return found

    def _translated(
        self, plan: Plan, teachers: Sequence[Path], text: CorpusFiles, pair: list[Path], suffix: str
    ) -> list[Path]:
        """Add the stages that translate a source with or without a reference."""
        # They are compared as translations are scored in training.
        metrics = plan.config.metrics
        by: dict[str, Any] = {"tokenize": metrics.tokenize, "lowercase": metrics.lowercase}
        by = {"reference": pair[1], **by} if self.interpolation and pair[1:] else {}
        if self.reverse is not None and not pair[1:]:
            by = {"reverse": plan.existing("reverse", self.reverse, text.swapped)}
        add = partial(plan.add, "translate", suffix=suffix)
        if not teachers:
            own: dict[str, Any] = {"server": self.teacher, "input": pair[0], **by}
            own |= {"candidates": self.interpolation} if by else {}
            free = {"answers": str(plan.folder / "answers.jsonl")}
            free |= {"source": text.source, "target": text.target}
            return [*add("ask", own, ["source.txt", "target.txt"], starmap(override, free.items()))]
        own = {"checkpoint": one_or_all(teachers), "input": pair[0]}
        name = pair[1].name if pair[1:] else f"synthetic.{text.target}"
        if not by:
            return [pair[0], *add("translate", own, [name])]
        own |= {"decoding.nbest": self.interpolation, "format": "json"}
        # Another search that the user chooses has its own width.
        chosen = "decoding" in map(override_key, plan.extras.get("translate", ()))
        beam = ["decoding=beam", override("decoding.beam_size", self.interpolation)]
        [nbest] = add("translate", own, [f"{name}.jsonl"], [] if chosen else beam)
        by = {"nbest": nbest, **by} if pair[1:] else {"nbest": nbest, **by, "source": pair[0]}
        return [pair[0], *plan.add("select", "select", by, [name], suffix=suffix)]

    def _cleaned(self, plan: Plan, text: CorpusFiles, pair: list[Path], suffix: str) -> list[Path]:
        if not self.clean:
            return pair
        own = {f"data.{key}": value for key, value in {**text.alone, "train": pair}.items()}
        names = [file.name for file in pair]
        arguments = ["output=x", *plan.extras.get("clean", ())]
        models = plan.compose("clean", arguments, None).models or ()
        reads = map(partial(plan.existing, "clean.models"), models, (text, text.swapped))
        return [*plan.add("clean", "clean", own, names, ["data=files"], suffix=suffix, reads=reads)]


def _seeds(plan: Plan, teachers: int) -> list[dict[str, int]]:
    """The seeds of each teacher and of the order of its batches; a single one has the user's."""
    if teachers == 1:
        return [{}]
    seeds = {"seed": plan.config.seed, "data.seed": plan.config.data.seed}
    return [{key: seed + n for key, seed in seeds.items()} for n in range(teachers)]
