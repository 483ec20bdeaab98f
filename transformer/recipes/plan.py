"""The plan of a recipe: its stages in their order, each composed before the first one begins.

It does not run them, and does not know which recipes there are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.model.checkpoint.checkpoint import PORTABLE, read_payload
from transformer.recipes.overrides import key_of, literal, merged, override
from transformer.recipes.refusals import (
    refuse_another_model,
    refuse_idle,
    refuse_owned,
    refuse_what_no_recipe_can,
)
from transformer.recipes.stage import Stage
from transformer.recipes.texts import (
    Sides,
    Texts,
    by_name,
    files_of_corpus,
    paths_in,
    read_by_evaluation,
    text_settings,
)
from transformer.tasks.registry import make_task
from transformer.training.config import run_config

Compose = Callable[[str, Sequence[str]], dict[str, Any]]
"""The config of a verb, as plain values, from its arguments; raises InputError."""

Check = Callable[[str, Sequence[str], Mapping[str, Any], Mapping[str, Any]], None]
"""Refuses what a verb would refuse: the verb, its arguments, its config, and the search that the
model was validated with; raises InputError."""

_NEEDED = {
    "text": ["output=x"],
    "translate": ["checkpoint=x"],
    "evaluate": ["checkpoint=x"],
    "select": ["nbest=x", "reference=x", "output=x"],
}
"""Arguments without which a verb has no config."""

_LEFT_OUT = ("data.root", "data.validation_size", "data.test_size")
"""Of the user's corpus, and idle where stages name the files that were made of it."""


@dataclass
class Plan:
    """Stages, as they are added.

    Attributes:
        folder: Of the recipe.
        base: The user's arguments for every training.
        extras: More of them for each kind of stage.
        compose: Makes a config of arguments.
        check: Refuses calls of ``translate`` and ``evaluate``.
        stages: In their order.
    """

    folder: Path
    base: tuple[str, ...]
    extras: Mapping[str, tuple[str, ...]]
    compose: Compose
    check: Check
    stages: list[Stage] = field(default_factory=list)
    _defaults: dict[str, dict[str, Any]] = field(default_factory=dict)
    _kinds: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Compose what the user says for all trainings.

        Raises:
            InputError: It is wrong, or nothing that a recipe can do.
        """
        for argument in (*self.base, *(one for group in self.extras.values() for one in group)):
            if argument.startswith(("hydra.", "-", "+", "~", "sweep=", "cluster=")):
                raise InputError(f"{argument} is not for a recipe; leave it out")
        refuse_owned(self.extras)
        self.config = self.compose("train", self.base)
        self.data = run_config(self.config).data
        refuse_what_no_recipe_can(self.config)

    def text(self) -> Texts:
        """Let the corpus be written as plain files, which all other stages read."""
        data = by_name(self.config["data"], self.data)
        name = self._name("text")
        texts = Texts.in_folder(self.folder / name, data)
        settings = text_settings(data, self._default("text")["data"])
        arguments = [
            *settings,
            override("splits", list(texts.splits)),
            override("output", self.folder / name),
        ]
        self._add(name, "text", arguments, files_of_corpus(data), texts.files)
        return texts

    def train(
        self,
        kind: str,
        data: Mapping[str, Any],
        *,
        suffix: str = "",
        settings: Sequence[str] = (),
        finetune_from: Path | None = None,
    ) -> Path:
        """Let a model be trained.

        Args:
            kind: Of the stage; the user's arguments for it come on top.
            data: Keys of ``data.``, with the files to read.
            suffix: Of the name, where there are several of this kind.
            settings: Arguments that the user may replace.
            finetune_from: What it begins with.

        Returns:
            The checkpoint that it will leave.
        """
        name = self._name(f"{kind}{suffix}")
        folder = self.folder / name
        own = [override(f"data.{key}", value) for key, value in data.items()]
        if finetune_from is not None:
            own.append(override("finetune_from", finetune_from))
        own += [override("hydra.run.dir", folder), "checkpoint=auto"]
        base = [one for one in self.base if key_of(one) not in _LEFT_OUT]
        arguments = merged(base, settings, self._extras(kind), own)
        inputs = [*paths_in(data), *([] if finetune_from is None else [finetune_from])]
        checkpoint = folder / "checkpoints" / "best.ckpt"
        self._add(name, "train", arguments, inputs, [checkpoint])
        # What the task cannot do is refused too; no text is read for that.
        make_task(run_config(self.stages[-1].config))
        for stage in self.stages:
            if finetune_from in stage.outputs:
                refuse_another_model(stage, self.stages[-1])
        return checkpoint

    def translate(
        self,
        checkpoints: Sequence[Path],
        source: Path,
        output: str,
        *,
        settings: Sequence[str] = (),
        fixed: Sequence[str] = (),
    ) -> Path:
        """Let a file be translated by a model, or an ensemble.

        Args:
            checkpoints: Of the models.
            source: The file.
            output: The name of the translation.
            settings: Arguments that the user may replace.
            fixed: Arguments that the user may not.

        Returns:
            The translation.
        """
        name = self._name("translate")
        file = self.folder / name / output
        own = [
            *(_checkpoint(checkpoints), override("input", source)),
            *(override("output", file), *fixed),
        ]
        arguments = merged(settings, self._extras("translate"), own)
        self._add(name, "translate", arguments, [*checkpoints, source], [file])
        self._check_search(checkpoints[0])
        return file

    def select(self, nbest: Path, reference: Path, output: str) -> Path:
        """Let the candidates nearest to the references be taken; returns the file of them.

        They are compared as trainings are scored.
        """
        name = self._name("select")
        file = self.folder / name / output
        arguments = [
            *(override("nbest", nbest), override("reference", reference)),
            *(override("output", file), *starmap(override, self.config["metrics"].items())),
        ]
        self._add(name, "select", arguments, [nbest, reference], [file])
        return file

    def evaluate(self, checkpoints: Sequence[Path], texts: Sides, suffix: str = "") -> None:
        """Let a model, or an ensemble, be scored on the validation text.

        With a ``suffix`` it is a kind of stage of its own, as what it scores may be an ensemble, or
        of another direction.
        """
        kind = f"evaluate{suffix}"
        name = self._name(kind)
        own = [
            *(_checkpoint(checkpoints), override("source", texts.source)),
            *(override("reference", texts.target), override("output", self.folder / name)),
        ]
        arguments = merged(self._extras(kind), own)
        outputs = [self.folder / name / f"{texts.source.name}.{end}" for end in ("json", "hyp")]
        files = read_by_evaluation(self.compose("evaluate", arguments))
        self._add(name, "evaluate", arguments, [*checkpoints, *texts, *files], outputs)
        self._check_search(checkpoints[0])

    def complete(self) -> None:
        """See that all that the user says has been said to a stage.

        Raises:
            InputError: There is no stage of a kind that the user gives arguments to.
        """
        refuse_idle(self.extras, self._kinds)

    def _extras(self, kind: str) -> tuple[str, ...]:
        self._kinds.add(kind)
        return tuple(self.extras.get(kind, ()))

    def _check_search(self, checkpoint: Path) -> None:
        """Refuse what the last stage would refuse: its search changes that of a training."""
        stage = self.stages[-1]
        searches = [one.config["decoding"] for one in self.stages if checkpoint in one.outputs]
        if searches:
            search = searches[0]
        elif any(one.startswith("decoding.") for one in stage.arguments):
            search = read_payload(checkpoint)[PORTABLE]["config"]["decoding"]
        else:
            search = stage.config["decoding"]
        self.check(stage.verb, stage.arguments, stage.config, search)

    def _default(self, verb: str) -> dict[str, Any]:
        """What a verb makes of no arguments."""
        if verb not in self._defaults:
            self._defaults[verb] = self.compose(verb, _NEEDED.get(verb, []))
        return self._defaults[verb]

    def _name(self, kind: str) -> str:
        return f"{len(self.stages) + 1:02}_{kind}"

    def _add(
        self,
        name: str,
        verb: str,
        arguments: Iterable[str],
        inputs: Iterable[Path],
        outputs: Iterable[Path],
    ) -> None:
        given, files = tuple(arguments), (tuple(inputs), tuple(outputs))
        config, default = self.compose(verb, given), self._default(verb)
        stage = Stage(name, verb, given, config, *files, self.folder / name, default)
        self.stages.append(stage)


def _checkpoint(checkpoints: Sequence[Path]) -> str:
    one = len(checkpoints) == 1
    return f"checkpoint={literal(checkpoints[0] if one else list(checkpoints))}"
