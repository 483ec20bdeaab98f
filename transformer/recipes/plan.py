"""The plan of a recipe: its stages in their order, each composed before the first one runs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from transformer.checkpoint.checkpoint import portable_part, read_payload
from transformer.checkpoint.locate import find_checkpoint
from transformer.checkpoint.trust import named_classes, named_layers
from transformer.common.errors import InputError, raise_objections
from transformer.common.files import given_path
from transformer.common.own_code import import_code, own_class, trusts_all
from transformer.common.schema import Settings, override_key
from transformer.data.corpora.resolve import as_files
from transformer.recipes.corpus_files import TEXT_KEYS, CorpusFiles, corpus_paths, corpus_splits
from transformer.recipes.overrides import merged, override
from transformer.recipes.stage import Stage
from transformer.settings.data import DataConfig, check_unused_keys, unused_keys
from transformer.settings.run import RunConfig
from transformer.tasks.registry import make_task

Compose = Callable[[str, Sequence[str], RunConfig | None], Any]
"""The settings of a command from its arguments and, for ``translate`` and ``evaluate``, the config
of the run that trained its model; raises InputError."""

_ONLY_TEXT = ("data.root", "data.validation_size", "data.test_size")
"""Keys of the user's corpus, which only the first stage reads."""

_RESERVED = {
    "train": ("data", "data.corpora", *_ONLY_TEXT),
    "translate": ("input_format", "format", "alignment", "attention", "join"),
    "evaluate": ("split",),
    "ask": ("candidates", "reference", "reverse"),
    "select": ("reference", "source", "reverse", "tokenize", "lowercase"),
    "clean": ("data", "splits"),
}
"""Keys that the user cannot set for a stage, besides those that the recipe sets."""


class Plan:
    """Stages as they are added; ``base`` is for all trainings, ``extras`` for a kind of stage."""

    def __init__(
        self,
        folder: Path,
        base: Sequence[str],
        extras: Mapping[str, Sequence[str]],
        compose: Compose,
    ) -> None:
        self.folder, self._base, self.extras = folder, merged(base), extras
        self.compose = compose
        self._runs: dict[Path, RunConfig] = {}
        self._kinds: set[str] = set()
        self.stages: list[Stage] = []
        self.config: RunConfig = compose("train", self._base, None)
        _check_corpus(self.config)
        self.data = self.config.data
        check_unused_keys(self.data)

    def text(self) -> CorpusFiles:
        """Add the stage that writes the corpus as plain files, which all other stages read."""
        default = DataConfig()
        values = {key: getattr(self.data, key) for key in TEXT_KEYS}
        settings = [override(f"data.{k}", v) for k, v in values.items() if v != getattr(default, k)]
        data = as_files(self.data) if self.data.corpus == "folder" else self.data
        splits, languages = corpus_splits(data), (data.source, data.target)
        outputs = [f"{split}.{code}" for split in splits for code in languages]
        reads = corpus_paths(data)
        files = self.add("text", "text", {"splits": splits}, outputs, settings, reads=reads)
        return CorpusFiles(files[0].parent, *languages, splits)

    def train(
        self,
        kind: str,
        data: Mapping[str, Any],
        own: Mapping[str, Any] | None = None,
        suffix: str = "",
    ) -> Path:
        """Add a training run on the files in keys of ``data.``; returns its checkpoint."""
        keys = {f"data.{key}": value for key, value in data.items()} | dict(own or {})
        keys["checkpoint"] = "auto"
        base = [one for one in self._base if override_key(one) not in (*keys, *_ONLY_TEXT)]
        outputs = ["checkpoints/best.ckpt"]
        return self.add(kind, "train", keys, outputs, base, suffix=suffix)[0]

    def evaluate(self, models: Sequence[Path], text: CorpusFiles, kind: str = "evaluate") -> None:
        """Add the evaluation of a model, or an ensemble, on the validation text."""
        source, reference = text["validation"]
        own = {"checkpoint": one_or_all(models), "source": source, "reference": reference}
        # Code that only a checkpoint names is not run.
        code = {"custom": self.config.metrics.custom, "comet": self.config.metrics.comet}
        settings = [override(key, value) for key, value in code.items() if value is not None]
        self.add(kind, "evaluate", own, [f"{source.name}.json", f"{source.name}.hyp"], settings)

    def existing(self, key: str, name: str | Path, text: CorpusFiles) -> Path:
        """The checkpoint of a run that the user names; InputError if it has another direction."""
        checkpoint = find_checkpoint(Path(name))
        config = portable_part(read_payload(checkpoint, tensors=False)).config
        self._runs[checkpoint], data = config, config.data
        several = data.corpora is not None or data.target_tag
        if not several and (data.source, data.target) != (text.source, text.target):
            raise InputError(
                f"{key}: {name} translates {data.source} to {data.target}, and "
                f"{text.source} to {text.target} is wanted; give another"
            )
        return checkpoint

    def add(
        self,
        kind: str,
        verb: str,
        own: Mapping[str, Any],
        outputs: Sequence[str],
        settings: Iterable[str] = (),
        *,
        suffix: str = "",
        reads: Iterable[Path] = (),
    ) -> tuple[Path, ...]:
        """Add a stage, and return its output files; InputError if the user sets what it decides."""
        folder = self.folder / f"{len(self.stages) + 1:02}_{kind}{suffix}"
        files = tuple(folder / name for name in outputs)
        written = files[0] if verb in ("translate", "select") else folder
        own = {**own, "hydra.run.dir" if verb == "train" else "output": written}
        extras = self.extras.get(kind, ())
        self._kinds.add(kind)
        if verb == "translate" and "launch=ray" in extras:
            # The next stage reads one file of lines.
            settings = (*settings, "join=true")
        raise_objections(
            f"{kind}.{key} cannot be set: the recipe decides it; leave it out"
            for key in map(override_key, extras)
            if key in own or key in _RESERVED[verb] or key.startswith("data.corpora.")
        )
        stage = Stage(folder, verb, merged(settings, extras), own, files, tuple(reads))
        if verb == "train":
            stage, self._runs[files[0]] = self._trained(stage)
            self.stages.append(stage)
            return files
        stage, config = self._applied(kind, stage)
        self.stages.append(replace(stage, reads=(*reads, *_files_read(verb, config))))
        return files

    def complete(self) -> None:
        """Raise InputError if there is no stage of a kind that the user gives arguments to."""
        raise_objections(
            f"{kind}.{arguments[0]} does nothing: there is no stage {kind}; leave it out"
            for kind, arguments in self.extras.items()
            if arguments and kind not in self._kinds
        )

    def _trained(self, stage: Stage) -> tuple[Stage, RunConfig]:
        """A checked training, without what its experiment says of a corpus that is no files."""
        config: RunConfig = self.compose("train", stage.arguments, None)
        if unread := unused_keys(config.data):
            unset = {f"data.{key}": None for key in unread}
            stage = replace(stage, own={**stage.own, **unset})
            config = self.compose("train", stage.arguments, None)
        _check_corpus(config, stage.own)
        _check_run(config)
        return stage, config

    def _applied(self, kind: str, stage: Stage) -> tuple[Stage, Any]:
        """A checked stage that only reads models; those that this recipe trains are trusted."""
        read = {file: self._runs[file] for file in stage.inputs if file in self._runs}
        run = next(iter(read.values()), None) if stage.verb in ("translate", "evaluate") else None
        config = self.compose(stage.verb, stage.arguments, run)
        code = {file: named_layers(run.model) for file, run in read.items()}
        if not any(code.values()) or trusts_all() or config.trust:
            return stage, config
        raise_objections(
            f"{file} names code, {key}={name}; add {kind}.trust=true if you trust it"
            for file, named in code.items()
            for key, name in named
            if not file.is_relative_to(self.folder)
        )
        return replace(stage, own={**stage.own, "trust": True}), config


@dataclass(frozen=True)
class Recipe(Settings, ABC):
    """A way to a better model; its fields are the keys of the user."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of its stages, for the user to give arguments to: ``KIND.KEY=VALUE``."""

    @abstractmethod
    def add(self, plan: Plan) -> None:
        """Add its stages to a plan: the last two train a model, and evaluate it."""


def one_or_all(models: Sequence[Path]) -> Path | Sequence[Path]:
    """The value of ``checkpoint=``: a model, or the models of an ensemble."""
    return models if len(models) > 1 else models[0]


def _files_read(verb: str, config: Any) -> Iterator[Path]:
    """The files that only the arguments of the user name."""
    if verb == "evaluate":
        yield from (file for file in (config.terms, config.alignment) if isinstance(file, Path))
    elif verb == "ask" and "{text}" not in config.prompt:
        yield given_path(config.prompt)


def _check_run(config: RunConfig) -> None:
    """Raise what a training would raise before it reads text, also of the user's code."""
    import torch
    from pytorch_lightning import Callback

    from transformer.model.build import build_transformer

    named = named_classes(config)
    import_code(named)
    make_task(config)
    for name in config.callbacks.own:
        own_class("callbacks.own", name, Callback)
    if any(key.startswith("model.") for key, _ in named):
        with torch.device("meta"):
            build_transformer(config.model.sized(8, 8))


def _check_corpus(config: RunConfig, own: Collection[str] = ()) -> None:
    data = config.data
    values = {
        "task": None if config.task == "translation" else config.task,
        "checkpoint": config.checkpoint,
        "finetune_from": config.finetune_from,
        "objective": config.objective,
        "data.documents": data.documents,
        "data.alignment": data.alignment,
        "data.corpora": data.corpora and "{…}",
        "data.target_tag": data.target_tag or None,
        "data.streaming": data.streaming or None,
        "loss.alignment_weight": config.loss.alignment_weight or None,
    }
    raise_objections(
        f"{override(key, value)} does not go with a recipe, which reads one corpus of sentence "
        f"pairs; leave {key} out"
        for key, value in values.items()
        if value is not None and key not in own
    )
