"""Sequence-level knowledge distillation: a student learns what an ensemble of teachers says.

Kim and Rush 2016, "Sequence-Level Knowledge Distillation"; ensembles: Freitag et al. 2017,
"Ensemble Distillation for Neural Machine Translation". It does not run anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformer.common.errors import InputError
from transformer.recipes.corpus_files import CorpusFiles, only_train
from transformer.recipes.overrides import override, override_key
from transformer.recipes.plan import Plan, one_or_all


@dataclass(frozen=True)
class DistillConfig:
    """Keys of ``conf/recipe/distill.yaml``.

    Attributes:
        teachers: How many to train, the first with the seed of the call, each other with the next;
            or runs or checkpoints that are there.
        text: What the student learns from.
        tag: Before the distilled sources; None puts none.
        interpolation: Candidates for each sentence, of which the one nearest to the reference is
            learnt from (Kim and Rush 2016, section 3.3); None takes the best translation.
    """

    teachers: int | Sequence[str]
    text: Literal["distilled", "original_and_distilled"]
    tag: str | None
    interpolation: int | None

    def __post_init__(self) -> None:
        if not self.teachers or (isinstance(self.teachers, int) and self.teachers < 1):
            raise InputError("teachers must be at least 1, or name runs: teachers=[RUN,RUN]")
        if self.tag is not None and self.text == "distilled":
            raise InputError(
                f"tag={self.tag} tells distilled from original text; set "
                "text=original_and_distilled too"
            )
        if self.interpolation is not None and self.interpolation < 2:
            raise InputError(
                f"interpolation={self.interpolation} must be at least 2 candidates, or null"
            )


def distill(plan: Plan, config: DistillConfig) -> None:
    """Add the stages to a plan.

    Raises:
        InputError: A teacher is not there, or of another direction.
    """
    texts = plan.text()
    if isinstance(config.teachers, int):
        teachers = [
            plan.train("teacher", texts.alone, own, suffix=f"_{number}")
            for number, own in enumerate(_seeds(plan, config.teachers), 1)
        ]
    else:
        teachers = [plan.existing("teachers", name, texts) for name in config.teachers]
    plan.evaluate(teachers, texts, "evaluate_teachers")
    distilled = [texts["train"][0], _distilled(plan, config, teachers, texts)]
    student = plan.train("student", _data(config, texts, distilled))
    plan.evaluate([student], texts)


def _seeds(plan: Plan, teachers: int) -> list[dict[str, int]]:
    """The seed of each teacher, and of the order of its batches; those of the call for a single."""
    if teachers == 1:
        return [{}]
    seeds = {"seed": plan.config["seed"], "data.seed": plan.config["data"]["seed"]}
    return [{key: seed + n for key, seed in seeds.items()} for n in range(teachers)]


def _distilled(
    plan: Plan, config: DistillConfig, teachers: Sequence[Path], texts: CorpusFiles
) -> Path:
    """Add the stages that make the target side."""
    (source, target), count = texts["train"], config.interpolation
    own: dict[str, Any] = {"checkpoint": one_or_all(teachers), "input": source}
    if count is None:
        return plan.add("translate", "translate", own, [target.name])[0]
    own |= {"decoding.nbest": count, "format": "json"}
    # Another search that the user chooses has its own width.
    searched = "decoding" in map(override_key, plan.extras.get("translate", ()))
    search = [] if searched else ["decoding=beam", override("decoding.beam_size", count)]
    [nbest] = plan.add("translate", "translate", own, [f"{target.name}.jsonl"], search)
    # They are compared as translations are scored in training.
    select = {"nbest": nbest, "reference": target, **plan.config["metrics"]}
    return plan.add("select", "select", select, [target.name])[0]


def _data(config: DistillConfig, texts: CorpusFiles, distilled: Sequence[Path]) -> dict[str, Any]:
    """Keys of ``data.`` for the student."""
    if config.text == "distilled":
        return texts.alone | {"train": distilled}
    tag = {} if config.tag is None else {"tag": config.tag}
    return texts.mixed({"original": texts.as_corpus, "distilled": only_train(distilled) | tag})
