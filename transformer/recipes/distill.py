"""Sequence-level knowledge distillation: a student learns what an ensemble of teachers says.

Kim and Rush 2016, "Sequence-Level Knowledge Distillation"; ensembles: Freitag et al. 2017,
"Ensemble Distillation for Neural Machine Translation". It does not run anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformer.common.errors import InputError
from transformer.model.checkpoint.locate import find_checkpoint
from transformer.recipes.overrides import key_of, override
from transformer.recipes.plan import Plan
from transformer.recipes.refusals import refuse_fixed, refuse_other_direction
from transformer.recipes.texts import Sides, Texts, mixed, only_to_learn_from


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


def distill(plan: Plan, config: DistillConfig) -> Path:
    """Add the stages to a plan; returns the checkpoint of the student.

    Raises:
        InputError: A teacher is not there.
    """
    if isinstance(config.teachers, int):
        seeds = [_seeds(plan, number) for number in range(config.teachers)]
        if len(seeds) > 1:
            extras = plan.extras.get("teacher", ())
            refuse_fixed("teacher", extras, seeds[0], f"teachers={len(seeds)}")
        texts = plan.text()
        teachers = [
            plan.train("teacher", texts.alone, suffix=f"_{number}", settings=own)
            for number, own in enumerate(seeds, 1)
        ]
    else:
        teachers = [find_checkpoint(Path(name)) for name in config.teachers]
        texts = plan.text()
        for name, teacher in zip(config.teachers, teachers, strict=True):
            refuse_other_direction(f"teachers: {name}", teacher, texts.source, texts.target)
    plan.evaluate(teachers, texts.validation, "_teachers")
    distilled = Sides(texts.train.source, _distilled(plan, config, teachers, texts))
    student = plan.train("student", _data(config, texts, distilled))
    plan.evaluate([student], texts.validation)
    return student


def _seeds(plan: Plan, number: int) -> list[str]:
    """The seed of a teacher, and of the order of its batches: another for each."""
    seeds = {"seed": plan.config["seed"], "data.seed": plan.config["data"]["seed"]}
    return [override(key, seed + number) for key, seed in seeds.items()]


def _distilled(plan: Plan, config: DistillConfig, teachers: Sequence[Path], texts: Texts) -> Path:
    name, count = texts.train.target.name, config.interpolation
    if count is None:
        return plan.translate(teachers, texts.train.source, name)
    own = plan.extras.get("translate", ())
    fixed = [override("decoding.nbest", count), "format=json"]
    refuse_fixed("translate", own, fixed, f"interpolation={count}")
    # Another search that the user chooses has its own width.
    searched = any(key_of(one) == "decoding" for one in own)
    search = [] if searched else ["decoding=beam", override("decoding.beam_size", count)]
    nbest = plan.translate(
        teachers, texts.train.source, f"{name}.jsonl", settings=search, fixed=fixed
    )
    return plan.select(nbest, texts.train.target, name)


def _data(config: DistillConfig, texts: Texts, distilled: Sides) -> dict[str, Any]:
    """Keys of ``data.`` for the student."""
    if config.text == "distilled":
        return texts.alone | {"train": list(distilled)}
    tag = {} if config.tag is None else {"tag": config.tag}
    corpora = {
        "original": {"train": list(texts.train), **texts.evaluated},
        "distilled": only_to_learn_from(distilled) | tag,
    }
    return mixed(texts.languages, corpora)
