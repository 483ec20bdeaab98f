"""The plan of a recipe: its stages in their order, each composed before the first one begins.

It does not run them, and does not know which recipes there are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

from transformer.errors import InputError
from transformer.recipes.overrides import key_of, literal, merged, override
from transformer.recipes.stage import Stage
from transformer.recipes.texts import Sides, Texts, by_name, files_of_corpus, text_settings
from transformer.training.config import run_config

Compose = Callable[[str, Sequence[str]], dict[str, Any]]
"""The config of a verb, as plain values, from its arguments; raises InputError."""

OWNED = (
    *("hydra.", "checkpoint", "finetune_from", "input", "output", "source", "reference", "format"),
    *("data.corpus", "data.corpora", "data.train", "data.validation", "data.test"),
    *("data.source", "data.target", "data.root", "data.alignment", "data.streaming"),
)
"""What the recipe says itself to a stage; a user says it to the recipe, or not at all."""

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
        stages: In their order.
    """

    folder: Path
    base: tuple[str, ...]
    extras: Mapping[str, tuple[str, ...]]
    compose: Compose
    stages: list[Stage] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Compose what the user says for all trainings.

        Raises:
            InputError: It is wrong, or nothing that a recipe can do.
        """
        for argument in (*self.base, *(one for group in self.extras.values() for one in group)):
            if argument.startswith(("hydra.", "-", "+", "~", "sweep=", "cluster=")):
                raise InputError(f"{argument} is not for a recipe; leave it out")
        for kind, arguments in self.extras.items():
            for argument in arguments:
                _refuse_owned(kind, key_of(argument))
        self.config = self.compose("train", self.base)
        self.data = run_config(self.config).data
        _refuse_what_no_recipe_can(self.config)

    def text(self) -> Texts:
        """Let the corpus be written as plain files, which all other stages read."""
        data = by_name(self.config["data"], self.data)
        name = self._name("text")
        texts = Texts.in_folder(self.folder / name, data)
        settings = text_settings(data, self.compose("text", ["output=x"])["data"])
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
        arguments = merged(base, settings, self.extras.get(kind, ()), own)
        inputs = [*_files(data), *([] if finetune_from is None else [finetune_from])]
        checkpoint = folder / "checkpoints" / "best.ckpt"
        self._add(name, "train", arguments, inputs, [checkpoint])
        run_config(self.stages[-1].config)
        return checkpoint

    def translate(
        self,
        checkpoints: Sequence[Path],
        source: Path,
        output: str,
        settings: Sequence[str] = (),
    ) -> Path:
        """Let a file be translated by a model, or an ensemble; returns the translation."""
        name = self._name("translate")
        file = self.folder / name / output
        own = [
            *(_checkpoint(checkpoints), override("input", source)),
            *(override("output", file), *settings),
        ]
        arguments = merged(self.extras.get("translate", ()), own)
        self._add(name, "translate", arguments, [*checkpoints, source], [file])
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
        """Let a model, or an ensemble, be scored on the validation text."""
        name = self._name(f"evaluate{suffix}")
        own = [
            *(_checkpoint(checkpoints), override("source", texts.source)),
            *(override("reference", texts.target), override("output", self.folder / name)),
        ]
        arguments = merged(self.extras.get("evaluate", ()), own)
        outputs = [self.folder / name / f"{texts.source.name}.{end}" for end in ("json", "hyp")]
        self._add(name, "evaluate", arguments, [*checkpoints, *texts], outputs)

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
        given = tuple(arguments)
        config = self.compose(verb, given)
        folder = self.folder / name
        self.stages.append(Stage(name, verb, given, config, tuple(inputs), tuple(outputs), folder))


def _checkpoint(checkpoints: Sequence[Path]) -> str:
    one = len(checkpoints) == 1
    return f"checkpoint={literal(checkpoints[0] if one else list(checkpoints))}"


def _files(data: Any) -> list[Path]:
    """All paths in the keys of ``data.``."""
    if isinstance(data, Path):
        return [data]
    if isinstance(data, Mapping):
        return [path for one in data.values() for path in _files(one)]
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [path for one in data for path in _files(one)]
    return []


def _refuse_owned(kind: str, key: str) -> None:
    """Refuse for a stage what the recipe decides.

    Raises:
        InputError: It is that.
    """
    owned = key in OWNED or key.startswith("hydra.") or key == "data"
    if owned or key.startswith("data.corpora."):
        raise InputError(
            f"{kind}.{key} cannot be set: the recipe says itself what a stage reads and writes"
        )


def _refuse_what_no_recipe_can(config: Mapping[str, Any]) -> None:
    """Refuse runs whose text is more than lines that are translations of each other.

    Raises:
        InputError: It is such a run.
    """
    data = config["data"]
    for key, value, neutral in (
        *((key, config[key], None) for key in ("checkpoint", "finetune_from", "resume_check")),
        ("objective", config["objective"], None),
        ("task", config["task"], "translation"),
        *((f"data.{key}", data[key], None) for key in ("corpora", "documents", "alignment")),
        *((f"data.{key}", data[key], False) for key in ("target_tag", "streaming")),
        ("loss.alignment_weight", config["loss"]["alignment_weight"], 0.0),
    ):
        if value != neutral:
            said = key if isinstance(value, Mapping) else override(key, value)
            raise InputError(
                f"{said} does not go with a recipe, which begins with one corpus of "
                f"sentence pairs, and makes its own of it; leave {key} out"
            )
