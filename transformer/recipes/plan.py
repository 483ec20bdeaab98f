"""The plan of a recipe: its stages in their order, each composed before the first one runs."""

import hashlib
import json
import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import Any, ClassVar

from transformer.checkpoint.checkpoint import portable_part, read_payload
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.checkpoint.trust import named_classes, named_layers
from transformer.common.errors import InputError, raise_objections
from transformer.common.files import CONFIG_DIR, given_path
from transformer.common.own_code import import_code, own_class, trusts_all
from transformer.common.schema import Settings, override_key
from transformer.data.corpora.catalog import PUBLISHED, find
from transformer.data.corpora.resolve import as_files
from transformer.data.text.parallel import file_format
from transformer.recipes.overrides import merged, override
from transformer.settings.data import DataConfig, check_unused_keys, unused_keys
from transformer.settings.decoding import SearchConfig
from transformer.settings.metrics import MetricsConfig
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

FREE = frozenset(
    {
        "answers",
        "api_key_env",
        "backoff",
        "batch_tokens",
        "concurrency",
        "data.cache",
        "data.prepare_workers",
        "data.workers",
        "device",
        "gradient_checkpointing",
        "join",
        "launch",
        "logger.csv",
        "logger.tensorboard",
        "timeout",
        "trainer.accelerator",
        "trainer.log_every_n_steps",
        "trainer.strategy",
        "tries",
    }
)
"""Keys that do not change what a stage computes, and may differ between two calls.

``batch_tokens`` is that of translating and scoring; ``data.batch_tokens`` is not free.
"""

TEXT_KEYS = (
    "corpus",
    "source",
    "target",
    "source_kind",
    "root",
    "train",
    "validation",
    "test",
    "validation_size",
    "test_size",
    "cache",
    "lang",
    "features",
    "repeated_sources",
    "max_line",
)
"""Keys of ``data.`` that the verb ``text`` needs."""


_OF_ONE_LANGUAGE = ("zh", "ja-mecab", "ko-mecab")
"""Values of ``metrics.tokenize`` that are for one language."""


@dataclass(frozen=True)
class Stage:
    """One command, with the files that it reads and writes.

    Attributes:
        folder: Where it writes.
        verb: The command.
        settings: Arguments of the user.
        keys: Keys that the recipe sets, with their values.
        outputs: The files that it writes.
        reads: The files that it reads besides those in ``keys``.
    """

    folder: Path
    verb: str
    settings: tuple[str, ...]
    keys: Mapping[str, Any]
    outputs: tuple[Path, ...]
    reads: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def marker(self) -> Path:
        """The file beside the folder that records whether the stage is done (runner.py)."""
        return self.folder.with_name(f"{self.name}.json")

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*self.settings, *starmap(override, self.keys.items()))

    @property
    def command(self) -> str:
        """What a user types to run the stage by hand."""
        config_dir = os.environ.get(CONFIG_DIR)
        flags = ["--config-dir", config_dir] if config_dir else []
        return shlex.join(["python", "-m", "transformer", self.verb, *flags, *self.arguments])

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The files that it reads."""
        paths = (path for path in _paths_in(self.keys) if not path.is_relative_to(self.folder))
        return (*self.reads, *paths)

    @property
    def digest(self) -> str:
        """The sha256 of the command without free keys, with files as ``label`` names them."""
        settings = [argument for argument in self.settings if override_key(argument) not in FREE]
        config_dir = os.environ.get(CONFIG_DIR)
        # All of the user's own choices of groups, whether the settings name them or not.
        files = sorted(Path(config_dir).glob("*/*.yaml")) if config_dir else []
        choices = [file.read_text("utf-8") for file in files]
        content = [self.verb, settings, dict(self.keys), *choices]
        text = json.dumps(content, default=self.label)
        return hashlib.sha256(text.encode()).hexdigest()

    def label(self, file: Path) -> str:
        """The name of a file, relative to the folder of the recipe if it is inside."""
        recipe = self.folder.parent
        return str(file.relative_to(recipe) if file.is_relative_to(recipe) else file.absolute())


@dataclass(frozen=True)
class CorpusFiles:
    """The splits of a corpus as plain files in a folder; source and target are language codes."""

    folder: Path
    source: str
    target: str
    splits: tuple[str, ...]
    """train, validation, and test if there is one."""

    def __getitem__(self, split: str) -> list[Path]:
        return [self.folder / f"{split}.{language}" for language in (self.source, self.target)]

    @property
    def swapped(self) -> "CorpusFiles":
        return replace(self, source=self.target, target=self.source)

    @property
    def as_corpus(self) -> dict[str, Any]:
        """Keys of one of several corpora: all splits."""
        untested = {} if "test" in self.splits else {"test_size": 0}
        return {split: self[split] for split in self.splits} | untested

    @property
    def alone(self) -> dict[str, Any]:
        """Keys of ``data.`` for a training run on this text alone."""
        return self._keys("test") | self.as_corpus

    def mixed(self, corpora: Mapping[str, Any]) -> dict[str, Any]:
        """Keys of ``data.`` for a training run on several corpora."""
        return {**self._keys("train", "validation", "test"), "corpora": corpora}

    def _keys(self, *unset: str) -> dict[str, Any]:
        languages = {"source": self.source, "target": self.target}
        return {"corpus": "files", **languages, **dict.fromkeys(unset)}


class Plan:
    """The stages of a recipe, in the order in which they are added.

    ``base`` are the user's arguments for all trainings, ``extras`` those for each kind of stage.
    """

    def __init__(
        self,
        folder: Path,
        base: Sequence[str],
        extras: Mapping[str, Sequence[str]],
        compose: Compose,
    ) -> None:
        self.folder = folder
        self._base = merged(base)
        self.extras = extras
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
        settings = [
            override(f"data.{key}", getattr(self.data, key))
            for key in TEXT_KEYS
            if getattr(self.data, key) != getattr(default, key)
        ]
        data = as_files(self.data) if self.data.corpus == "folder" else self.data
        splits = corpus_splits(data)
        outputs = [f"{split}.{code}" for split in splits for code in (data.source, data.target)]
        reads = corpus_paths(data)
        files = self.add("text", "text", {"splits": splits}, outputs, settings, reads=reads)
        return CorpusFiles(files[0].parent, data.source, data.target, splits)

    def train(
        self,
        kind: str,
        data: Mapping[str, Any],
        extra_keys: Mapping[str, Any] | None = None,
        suffix: str = "",
        settings: Sequence[str] = (),
    ) -> Path:
        """Add a training run on the files in keys of ``data.``; returns its checkpoint.

        ``settings`` override the user's arguments for all trainings, and those for this kind of
        training override them.
        """
        keys = {f"data.{key}": value for key, value in data.items()} | dict(extra_keys or {})
        keys["checkpoint"] = "auto"
        unused = {*keys, *_ONLY_TEXT}
        base = [argument for argument in self._base if override_key(argument) not in unused]
        arguments = merged(base, settings)
        [best] = self.add(kind, "train", keys, ["checkpoints/best.ckpt"], arguments, suffix=suffix)
        return best

    @property
    def reverse_arguments(self) -> tuple[str, ...]:
        """Arguments of a training in the other direction: each language keeps its vocabulary, and
        ``metrics.tokenize`` of one language is not for the other."""
        tokenizer = self.config.tokenizer
        values: dict[str, Any] = {}
        if tokenizer.source != tokenizer.target:
            values["tokenizer.source"] = tokenizer.target
            values["tokenizer.target"] = tokenizer.source
        source_file, target_file = tokenizer.files
        if source_file != target_file:
            values["tokenizer.file"] = [target_file, source_file]
        if tokenizer.features is not None:
            # Only a source has features: the reverse model writes them as text.
            values["tokenizer.features"] = None
            values["data.features"] = None
        if self.config.metrics.tokenize in _OF_ONE_LANGUAGE:
            values["metrics.tokenize"] = MetricsConfig.tokenize
        return tuple(starmap(override, values.items()))

    def evaluate(self, models: Sequence[Path], text: CorpusFiles, kind: str = "evaluate") -> None:
        """Add the evaluation of a model, or an ensemble, on the validation text."""
        source, reference = text["validation"]
        keys = {"checkpoint": one_or_all(models), "source": source, "reference": reference}
        # Code that only a checkpoint names is not run.
        code = {"custom": self.config.metrics.custom, "comet": self.config.metrics.comet}
        settings = [override(key, value) for key, value in code.items() if value is not None]
        self.add(kind, "evaluate", keys, [f"{source.name}.json", f"{source.name}.hyp"], settings)

    def existing(self, key: str, name: str | Path, text: CorpusFiles) -> Path:
        """The checkpoint of a run that the user names; InputError if it has another direction."""
        checkpoint = find_checkpoint(Path(name))
        config = portable_part(read_payload(checkpoint, tensors=False)).config
        self._runs[checkpoint] = config
        learned = config.data.language_pairs
        if (text.source, text.target) not in learned and not config.data.target_tag:
            directions = ", ".join(f"{source} to {target}" for source, target in sorted(learned))
            raise InputError(
                f"{key}: {name} translates {directions}, and "
                f"{text.source} to {text.target} is wanted; give another"
            )
        return checkpoint

    def search_of(self, checkpoint: Path) -> SearchConfig:
        """The search of the validation of a run that the plan trains or reads."""
        return self._runs[checkpoint].decoding

    def add(
        self,
        kind: str,
        verb: str,
        keys: Mapping[str, Any],
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
        keys = {**keys, "hydra.run.dir" if verb == "train" else "output": written}
        extras = self.extras.get(kind, ())
        self._kinds.add(kind)
        if verb == "translate" and "launch=ray" in extras:
            # The next stage reads one file of lines.
            settings = (*settings, "join=true")
        raise_objections(
            f"{kind}.{key} cannot be set: the recipe decides it; leave it out"
            for key in map(override_key, extras)
            if key in keys or key in _RESERVED[verb] or key.startswith("data.corpora.")
        )
        stage = Stage(folder, verb, merged(settings, extras), keys, files, tuple(reads))
        if verb == "train":
            stage, self._runs[files[0]] = self._checked_training(stage)
        else:
            stage = self._checked_use(kind, stage)
        self.stages.append(stage)
        return files

    def complete(self) -> None:
        """Raise InputError if there is no stage of a kind that the user gives arguments to."""
        raise_objections(
            f"{kind}.{arguments[0]} does nothing: there is no stage {kind}; leave it out"
            for kind, arguments in self.extras.items()
            if arguments and kind not in self._kinds
        )

    def _checked_training(self, stage: Stage) -> tuple[Stage, RunConfig]:
        """A checked training and its config.

        Keys of its experiment that only apply to another kind of corpus are unset.
        """
        config: RunConfig = self.compose("train", stage.arguments, None)
        unused = unused_keys(config.data)
        if unused:
            unset = {f"data.{key}": None for key in unused}
            stage = replace(stage, keys={**stage.keys, **unset})
            config = self.compose("train", stage.arguments, None)
        _check_corpus(config, stage.keys)
        _check_run(config)
        named = (given_path(name) for name in dict.fromkeys(config.tokenizer.files) if name)
        files = [path for path in named if path.is_file()]  # a missing one stops the training
        return replace(stage, reads=(*stage.reads, *files)), config

    def _checked_use(self, kind: str, stage: Stage) -> Stage:
        """A checked stage that only reads models; those that this recipe trains are trusted."""
        models = {file: self._runs[file] for file in stage.inputs if file in self._runs}
        run = None
        if stage.verb in ("translate", "evaluate"):
            run = next(iter(models.values()), None)
        config = self.compose(stage.verb, stage.arguments, run)
        stage = replace(stage, reads=(*stage.reads, *_files_read(stage.verb, config)))
        code = {file: named_layers(run.model) for file, run in models.items()}
        if not any(code.values()) or trusts_all() or config.trust:
            return stage
        raise_objections(
            f"{file} names code, {key}={name}; add {kind}.trust=true if you trust it"
            for file, named in code.items()
            for key, name in named
            if not file.is_relative_to(self.folder)
        )
        return replace(stage, keys={**stage.keys, "trust": True})


@dataclass(frozen=True)
class Recipe(Settings, ABC):
    """A chain of stages that trains a better model; its fields are the keys of the user."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of its stages, for the user to give arguments to: ``KIND.KEY=VALUE``."""

    @abstractmethod
    def add(self, plan: Plan) -> None:
        """Add its stages to a plan: the last two train a model, and evaluate it."""


def one_or_all(models: Sequence[Path]) -> Path | Sequence[Path]:
    """The value of ``checkpoint=``: a model, or the models of an ensemble."""
    return models if len(models) > 1 else models[0]


def only_train(train: Sequence[Path], tag: str | None) -> dict[str, Any]:
    """Keys of a corpus that neither validates nor tests."""
    keys = {"train": list(train), "validation_size": 0, "test_size": 0}
    return keys if tag is None else {**keys, "tag": tag}


def monolingual_file(name: str) -> Path:
    """A text of one language that the user names, a sentence a line."""
    if file_format(name) != "plain":
        raise InputError(
            f"monolingual={name} must be plain text, a sentence a line, which may be gzipped"
        )
    return given_path(name)


def corpus_splits(data: DataConfig) -> tuple[str, ...]:
    """The splits that the verb ``text`` writes."""
    tested = data.corpus != "files" or data.test is not None or data.test_size > 0
    return ("train", "validation", "test") if tested else ("train", "validation")


def corpus_paths(data: DataConfig) -> tuple[Path, ...]:
    """The user's files that a corpus is read from; none if it is pocket or downloaded."""
    if data.corpus == "files":
        named = [split or [] for split in (data.train, data.validation, data.test)]
        pairs = [[split] if isinstance(split, str) else split for split in named]
        return tuple(given_path(path) for pair in pairs for path in pair)
    published = PUBLISHED.get(data.corpus)
    if published is None or data.root is None:
        return ()
    root = given_path(data.root)
    sides = [data.lang] if published.format else [data.source, data.target]
    return tuple(find(published, code, split, root) for split in published.splits for code in sides)


def _paths_in(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif not isinstance(value, str) and isinstance(value, Sequence | Mapping):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _paths_in(inner)


def _files_read(verb: str, config: Any) -> Iterator[Path]:
    """The files that only the arguments of the user name."""
    if verb == "translate" and config.glossary is not None:
        yield given_path(config.glossary)
    if verb in ("translate", "evaluate"):
        shortlist = dict(config.decoding or {}).get("shortlist")
        if shortlist not in (None, "auto"):
            yield given_path(shortlist)
    if verb == "evaluate":
        for file in (config.terms, config.alignment):
            if isinstance(file, Path):
                yield file
    elif verb == "ask" and "{text}" not in config.prompt:
        yield given_path(config.prompt)


def _check_run(config: RunConfig) -> None:
    """Raise the errors that a training raises before it reads text, also of the user's code."""
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


def _check_corpus(config: RunConfig, set_by_recipe: Collection[str] = ()) -> None:
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
        if value is not None and key not in set_by_recipe
    )
